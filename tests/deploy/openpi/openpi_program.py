"""A program of somebody else: openpi-client asks a server three times. Arguments: port, keys and shapes as JSON."""

import json
import sys

import numpy as np
from openpi_client import action_chunk_broker
from openpi_client.websocket_client_policy import WebsocketClientPolicy

port, seed, sizes, more = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
policy = WebsocketClientPolicy("127.0.0.1", port, more.pop("api_key", None))
rng = np.random.default_rng(seed)
answers, timings = [], []
for _ in range(3):
    observation = dict(more)
    for key, (kind, shape) in sizes.items():
        values = rng.integers(0, 256, shape) if kind == "uint8" else rng.normal(0.0, 0.1, shape)
        observation[key] = values.astype(kind)
    answer = policy.infer(observation)
    answers.append(answer["actions"].tolist())
    timings.append(sorted(answer["server_timing"]))
# Its own broker takes the actions of an answer one by one.
broker = action_chunk_broker.ActionChunkBroker(policy, len(answers[0]))
single = broker.infer(observation)["actions"].tolist()
print(json.dumps([policy.get_server_metadata(), answers, timings, str(answer["actions"].dtype), single]))
