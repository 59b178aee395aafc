"""Commands of the runtime as ``gantry --help`` lists them; what each needs is imported when it is used."""

from __future__ import annotations

from gantry_deploy.cli.command import Command, later

INSPECT = Command(
    name="inspect",
    help="show what a bundle contains and whether it is intact",
    add_arguments=later("gantry_deploy.cli.inspect:add_arguments"),
    run=later("gantry_deploy.cli.inspect:run"),
    description="Verify a bundle's hashes and show its contract: robot, joints, observation, action, command, scores.",
    epilog="example:\n  gantry inspect runs/walk/bundle --json contract.json",
)

CHECK = Command(
    name="check",
    help="the sim-to-sim gate: verify a bundle, then run it in another simulator, perturbed too",
    add_arguments=later("gantry_deploy.cli.check:add_arguments"),
    run=later("gantry_deploy.cli.check:run"),
    description=(
        "Verify a bundle's hashes and contract, compare what this machine computes with what training recorded, then "
        "run episodes in plain MuJoCo, an arm's at the simulated workbench and a car's on simulated roads, through the "
        "runtime's own loop and safety limits. Writes the scores into the "
        "bundle's card. Exit code 0 if it passes, 1 if a score is below the contract's threshold, 2 if the bundle is "
        "refused."
    ),
    epilog=(
        "examples:\n"
        "  gantry check runs/walk/bundle\n"
        "  gantry check walk.zip --episodes 200 --seed 1 --json scores.json\n"
        "  gantry check walk.zip --option delay_s=0.01 --no-card"
    ),
)

IMPORT_LEAPP = Command(
    name="import-leapp",
    help="make a LEAPP folder, which Isaac Lab exports, a bundle",
    add_arguments=later("gantry_deploy.leapp.command:add_arguments"),
    run=later("gantry_deploy.leapp.command:run"),
    description=(
        "Verify a LEAPP folder, match its tensors by kind and element names with a robot, and write a bundle with the "
        "unchanged network, which runs like any other (docs/leapp.md). Needs neither leapp nor torch. Code, changed "
        "files, gains of zero and inputs that this runtime has no signal for are refused, with exit code 2."
    ),
    epilog=(
        "examples:\n"
        "  gantry import-leapp Isaac-Velocity-Flat-UnitreeGo2 --robot go2 --output walk\n"
        "  gantry import-leapp go2-newton --robot go2 --stiffness 25 --damping 0.5 --output walk"
    ),
)

CALIBRATE = Command(
    name="calibrate",
    help="calibrate cameras by printed boards: lens, and pose on the robot",
    add_arguments=later("gantry_deploy.calibration.command:add_arguments"),
    run=later("gantry_deploy.calibration.command:run"),
    description=(
        "Write a board to print, calibrate a camera's lens from images of it, and find where the camera is on the "
        "robot. "
        "The result is a camera file, which depth sources read (docs/depth.md). Needs OpenCV. Exit code 2 where the "
        "images do not tell it well enough, with what is missing."
    ),
    epilog=(
        "examples:\n"
        "  gantry calibrate camera board --output board.png\n"
        "  gantry calibrate camera intrinsics --images lens/ --output front.yaml\n"
        "  gantry calibrate camera mounted --images floor/ --site front.yaml "
        "--board-pose '1.2 0.15 -0.32 3.1416 0 -1.5708'\n"
        "  gantry calibrate camera hand-eye --images wrist/ --site wrist.yaml --poses poses.yaml --robot yam"
    ),
)

RUN = Command(
    name="run",
    help="run a bundle on a robot: simulated, over ROS 2, or a mock",
    add_arguments=later("gantry_deploy.cli.run:add_arguments"),
    run=later("gantry_deploy.cli.run:run"),
    description=(
        "Stand up, let the policy follow a command for a while, stand again, then damp and let go. Exit code 1 if a "
        "fault damped the robot on the way, or the recording ended early; Ctrl-C damps it at once. A robot that is not "
        "simulated moves with --yes only, and not while another node commands it."
    ),
    epilog=(
        "examples:\n"
        "  gantry run runs/walk/bundle --command 0.5,0,0\n"
        "  gantry run walk.zip --backend mujoco --option noise=1 --option friction=0.5 --record walk.mcap\n"
        "  gantry run climb.zip --option terrain=climb_up --goal 6,0,0\n"
        "  gantry run walk.zip --backend ros --duration 10 --yes\n"
        "  gantry run climb.zip --backend ros --depth realsense,site=front.yaml --goal 2,0,0 --yes"
    ),
)

DOCTOR = Command(
    name="doctor",
    help="find wrong joints, signs, frames and scales in a robot's readings",
    add_arguments=later("gantry_deploy.cli.bring_up.diagnosis:add_doctor_arguments"),
    run=later("gantry_deploy.cli.bring_up.diagnosis:run_doctor"),
    description=(
        "Compare a robot's readings with each other: velocities with positions, torques with the motors' law, "
        "gyroscope and accelerometer with the orientation; and rates, ages and freezes. Reads a robot, which is not "
        "moved, or a recording, which shows more the more it moves. Exit code 1 if something is wrong."
    ),
    epilog="examples:\n  gantry doctor go2 --backend ros --seconds 10\n  gantry doctor walk.mcap --json doctor.json",
)

AUDIT = Command(
    name="audit",
    help="find where what a policy saw and sent differs from what its bundle says",
    add_arguments=later("gantry_deploy.cli.bring_up.diagnosis:add_audit_arguments"),
    run=later("gantry_deploy.cli.bring_up.diagnosis:run_audit"),
    description=(
        "Compute observations, actions and joint targets of a recording again from its raw states, and name the joint "
        "that is permuted, the sign that is flipped, the wrong frame, scale, offset or delay. Exit code 1 if something "
        "differs."
    ),
    epilog="example:\n  gantry audit walk.mcap runs/walk/bundle --json audit.json",
)

COMMISSION = Command(
    name="commission",
    help="a robot's first day: readings, joints one by one, limits, stop, camera, policy on the gantry",
    add_arguments=later("gantry_deploy.cli.bring_up.commission:add_arguments"),
    run=later("gantry_deploy.cli.bring_up.commission:run"),
    description=(
        "Guide an operator through a robot's first day, from reading it to its policy on the gantry at part of the "
        "gains, and write a report to keep. Every motion is asked for; Enter stops it. Exit code 1 if a step fails."
    ),
    epilog=(
        "examples:\n"
        "  gantry commission go2 --backend ros --bundle walk.zip --yes\n"
        "  gantry commission go2 --backend mujoco --option fixed_base=true --option realtime=true"
    ),
)

SERVE = Command(
    name="serve",
    help="serve a bundle to other people's programs, in openpi's websocket protocol",
    add_arguments=later("gantry_deploy.openpi.command:add_arguments"),
    run=later("gantry_deploy.openpi.command:run"),
    description=(
        "Answer observations with actions over a websocket, as openpi's policy server does, so that openpi-client and "
        "what is built on it drive a bundle (docs/serve.md). Every client is told first what the policy sees and how "
        "its actions are meant. Needs the extra 'serve'. Off this machine it asks for TLS, or for an API key and "
        "--insecure. Ctrl-C ends it."
    ),
    epilog=(
        "examples:\n"
        "  gantry serve runs/pick/bundle\n"
        "  gantry serve pretrained:yam-pick-place --port 0 --instruction 'put the cube onto the plate'\n"
        "  gantry serve pick.zip --host 0.0.0.0 --tls-cert server.pem --tls-key server.key"
    ),
)

RUNTIME = Command(
    name="runtime",
    help="cost of one policy step, and how evenly the control loop ticks",
    add_arguments=later("gantry_deploy.benchmarks.runtime:add_arguments"),
    run=later("gantry_deploy.benchmarks.runtime:run"),
    description=(
        "Time observing, inferring and judging, then run the control loop in real time on simulated robots that hang "
        "in the air: in this process, and as two ROS 2 nodes."
    ),
    epilog="examples:\n  gantry bench runtime --json runtime.json\n  gantry bench runtime walk.zip --seconds 60",
)
