"""Actors of pictures and words for PPO: what they learn, and what is exported of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tensordict import TensorDict

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_hardware.errors import GantryError
from gantry_policies.networks.layout import ObservationLayout, TermSlice
from gantry_policies.networks.pictures import PictureModel
from gantry_policies.networks.sizes import KeypointsCfg, WordsNetCfg
from gantry_policies.on_policy.presets import distilled, looking
from gantry_sim.tasks.manipulation.presets import TELL_PUSH as TELL

LAYOUT = ObservationLayout((TermSlice("numbers", 0, 2), TermSlice("instruction", 2, MAX_WORDS)), vocabulary=3)
SMALL = KeypointsCfg(stem_width=8, width=16, keypoints=4)


def model_of(groups, layout=LAYOUT):
    return PictureModel(
        groups,
        {"actor": [str(name) for name in groups.keys()]},  # noqa: SIM118 - a TensorDict
        "actor",
        1,
        hidden_dims=(32,),
        activation="elu",
        obs_normalization=True,
        pictures=SMALL,
        words=WordsNetCfg(width=8, hidden=(16,)),
        layout=layout,
    )


def seen(rows=128):
    """A picture of a red and a blue spot, and a word that says which one's column to answer, from -1 to 1."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.randint(0, 14, (rows, 2), generator=generator)
    heights = torch.tensor([2, 10]) + torch.randint(0, 4, (rows, 2), generator=generator)
    picture = torch.full((rows, 3, 16, 16), 90, dtype=torch.uint8)
    for row in range(rows):
        for spot, colour in enumerate((0, 2)):
            x, y = columns[row, spot], heights[row, spot]
            picture[row, :, y : y + 2, x : x + 2] = 0
            picture[row, colour, y : y + 2, x : x + 2] = 250
    which = torch.randint(0, 2, (rows,), generator=generator)
    flat = torch.zeros(rows, LAYOUT.size)
    flat[:, :2] = torch.randn(rows, 2, generator=generator) * 3.0 + 5.0
    flat[:, 2], flat[:, 3] = 2.0, 3.0 + which
    answer = columns.gather(1, which[:, None]).float() / 6.5 - 1.0
    return TensorDict({"actor": flat, "image/front": picture}, batch_size=[rows]), answer


def test_words_say_where_in_the_picture_to_look_and_the_export_does_the_same():
    torch.manual_seed(0)
    groups, answer = seen()
    model = model_of(groups)
    model.update_normalization(groups)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(250):
        loss = (model(groups) - answer).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1 * answer.square().mean()
    exported = model.as_onnx().eval()
    with torch.no_grad():
        found = exported({"state": groups["actor"], "image/front": groups["image/front"]})
        torch.testing.assert_close(found, model.eval()(groups))


def test_without_words_the_numbers_go_in_as_they_are():
    layout = ObservationLayout((TermSlice("numbers", 0, 2),))
    picture = torch.zeros(3, 3, 16, 16, dtype=torch.uint8)
    groups = TensorDict({"actor": torch.zeros(3, 2), "image/front": picture}, batch_size=[3])
    model = model_of(groups, layout)
    assert model.numbers is None
    assert model(groups).shape == (3, 1)


def test_a_network_of_pictures_needs_one():
    with pytest.raises(GantryError, match="these environments show none"):
        model_of(TensorDict({"actor": torch.zeros(3, LAYOUT.size)}, batch_size=[3]))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({"width": 50}, "width is 50"), ({"keypoints": 0}, "keypoints is 0"), ({"stem_stride": 3}, "stem_stride is 3")],
)
def test_sizes_that_cannot_be_are_refused(sizes, message):
    with pytest.raises(GantryError, match=message):
        KeypointsCfg(**sizes)


def test_the_actor_reads_pictures_and_the_critic_numbers():
    student = looking(distilled(instructed=True))
    described = student.as_rsl_rl(None, layout=LAYOUT, images=("image/front",))
    assert described["obs_groups"] == {"actor": ["actor", "image/front"], "critic": ["actor", "critic"]}
    plain = replace(student, network="words").as_rsl_rl(None, layout=LAYOUT, images=("image/front",))
    assert plain["obs_groups"]["actor"] == ["actor"]


def test_dagger_lasts_longer_and_remembers_fewer_samples_where_there_are_pictures():
    numbers = TELL.preset("dagger-ppo")
    pictures = TELL.preset("dagger-images")

    def samples(preset, iterations):
        return preset.env.num_envs * preset.learner.steps_per_env * iterations

    lasts = [samples(item, item.learner.guide.imitation_iterations) for item in (numbers, pictures)]
    kept = [samples(item, item.learner.guide.aggregate_rollouts) for item in (numbers, pictures)]
    assert lasts[0] < lasts[1]
    assert kept[1] < kept[0]
    assert kept[1] * 3 * pictures.env.image_px**2 < 1 << 30  # bytes
    assert looking(replace(numbers.learner, guide=None)).guide is None
