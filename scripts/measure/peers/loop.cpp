// A plain C++ control loop, to stand beside `gantry bench runtime`: no robot, no safety, no recording.
//
// Every period it makes an observation, runs a network of three hidden layers by hand and clamps the targets. It prints
// JSON: 50th and 99th percentile of a step, s, and 99th percentile of the period's distance from nominal, s.
//
//     g++ -O3 -march=native loop.cpp -o loop && ./loop RATE_HZ SECONDS ITERATIONS

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr int kJoints = 12;
const std::vector<int> kSizes = {47, 256, 128, 64, kJoints};

double now_s() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Network {
  std::vector<std::vector<float>> weights;

  Network() {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0F, 0.05F);
    for (size_t layer = 0; layer + 1 < kSizes.size(); ++layer) {
      weights.emplace_back(static_cast<size_t>(kSizes[layer] * kSizes[layer + 1]));
      for (float& weight : weights.back()) weight = normal(generator);
    }
  }

  std::vector<float> operator()(std::vector<float> x) const {
    for (size_t layer = 0; layer < weights.size(); ++layer) {
      const int rows = kSizes[layer], cols = kSizes[layer + 1];
      std::vector<float> y(static_cast<size_t>(cols), 0.0F);
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < cols; ++j) y[j] += x[i] * weights[layer][static_cast<size_t>(i * cols + j)];
      if (layer + 1 < weights.size())
        for (float& value : y) value = value > 0.0F ? value : std::expm1(value);
      x = std::move(y);
    }
    return x;
  }
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: loop RATE_HZ SECONDS ITERATIONS\n");
    return 2;
  }
  const double rate_hz = std::atof(argv[1]), seconds = std::atof(argv[2]);
  const int iterations = std::atoi(argv[3]);
  const Network network;
  std::vector<float> last(kJoints, 0.0F);
  float sum = 0.0F;
  auto step = [&](int tick) {
    std::vector<float> observation(static_cast<size_t>(kSizes.front()));
    for (size_t i = 0; i < observation.size(); ++i)
      observation[i] = i < last.size() ? last[i] : std::sin(0.01F * static_cast<float>(tick + static_cast<int>(i)));
    last = network(observation);
    for (float& value : last) value = std::clamp(value, -4.0F, 4.0F);
    sum += last[0];
  };
  std::vector<double> steps, periods;
  for (int i = 0; i < iterations; ++i) {
    const double start = now_s();
    step(i);
    steps.push_back(now_s() - start);
  }
  const double dt_s = 1.0 / rate_hz;
  double next = now_s() + dt_s, before = 0.0;
  for (int i = 0; i < static_cast<int>(seconds * rate_hz); ++i, next += dt_s) {
    timespec until{static_cast<time_t>(next), static_cast<long>(1e9 * (next - std::floor(next)))};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    const double started = now_s();
    if (before > 0.0) periods.push_back(std::abs(started - before - dt_s));
    before = started;
    step(i);
  }
  std::printf("{\"step_p50_s\": %.9f, \"step_p99_s\": %.9f, \"jitter_p99_s\": %.9f, \"sum\": %.3f}\n",
              percentile(steps, 0.5), percentile(steps, 0.99), percentile(periods, 0.99), static_cast<double>(sum));
  return 0;
}
