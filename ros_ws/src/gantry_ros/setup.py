"""For colcon on a robot's own ROS 2; elsewhere the one pyproject.toml at the repository's root installs everything.

The runtime itself (gantry_deploy, gantry_hardware) is no ROS package: install it into the Python that ROS uses,
``pip install .`` at the repository's root.
"""

from setuptools import find_packages, setup

NAME = "gantry_ros"

setup(
    name=NAME,
    version="0.2.0",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    zip_safe=True,
    license="Apache-2.0",
    description="ROS 2 nodes around the Gantry runtime.",
    entry_points={
        "console_scripts": [
            "policy_node = gantry_ros.__main__:policy_node",
            "mapping_node = gantry_ros.__main__:mapping_node",
            "sim_robot_node = gantry_ros.__main__:sim_robot_node",
            "sim_car_node = gantry_ros.__main__:sim_car_node",
            "operator_node = gantry_ros.__main__:operator_node",
            "episode_node = gantry_ros.__main__:episode_node",
            "teleop_node = gantry_ros.__main__:teleop_node",
            "session_node = gantry_ros.__main__:session_node",
            "controller_watch_node = gantry_ros.__main__:controller_watch_node",
        ]
    },
)
