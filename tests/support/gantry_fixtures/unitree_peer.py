"""The manufacturer's compiled SDK (package far-unitree-sdk) as the other side; a script that needs nothing of ours.

``client`` reads states and sends standing commands; ``robot`` tells states, answers the motion switcher and reads
commands. Both print one line of JSON at the end. Commands: client|robot go2|g1 CONFIG SECONDS.
"""

import json
import os
import select
import sys
import time

import unitree_interface as sdk

GO2_HOME = [0.0, 0.9, -1.8] * 4


def client(interface, home, seconds):
    """Read states and send commands; counts both."""
    poses, sent = set(), 0
    command = interface.create_zero_command()
    end_s = time.time() + seconds
    state = None
    while time.time() < end_s:
        state = interface.read_low_state()
        if any(state.imu.quat):
            poses.add(tuple(state.motor.q))
            command.q_target = home
            interface.write_low_command(command)
            sent += 1
        time.sleep(0.002)
    return {"states": len(poses), "sent": sent, "quat": list(state.imu.quat), "q": list(state.motor.q)}


def robot(interface, home, seconds):
    """Tell states of a robot at rest and read commands, until standard input is closed; counts those that came, which
    the SDK's checksum has passed.
    """
    del seconds
    interface.enable_motion_switcher_responder()
    state = sdk.LowState(len(home))
    state.imu.quat = [1.0, 0.0, 0.0, 0.0]
    state.motor.q = home
    heard, last, begin_s = 0, None, time.time()
    while not select.select([sys.stdin], [], [], 0.0)[0]:
        now_s = time.time() - begin_s
        state.tick = int(1000.0 * now_s)
        state.imu.accel = [0.0, 1e-4 * (state.tick % 7), 9.81]
        interface.publish_low_state(state)
        command = interface.read_incoming_command()
        if command is not None and any(command.kp):  # Of zeros is the one that it has before any came.
            heard += 1
            last = {"q": list(command.q_target), "kp": list(command.kp), "kd": list(command.kd)}
        time.sleep(0.002)
    return {"heard": heard, "last": last}


def main():
    """Be one side."""
    role, name, config, seconds = sys.argv[1:]
    kinds = {"go2": (sdk.RobotType.GO2, sdk.MessageType.GO2), "g1": (sdk.RobotType.G1, sdk.MessageType.HG)}
    interface = sdk.UnitreeInterface("lo", *kinds[name], dds_config=config)
    home = GO2_HOME if name == "go2" else [0.0] * 29
    print(json.dumps({"ready": True}), flush=True)
    print(json.dumps((client if role == "client" else robot)(interface, home, float(seconds))), flush=True)
    os._exit(0)  # The SDK may abort in its own clean-up: a thread of it locks a mutex that is gone already.


main()
