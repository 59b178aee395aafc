"""For colcon on a robot's own ROS 2; elsewhere the one pyproject.toml at the repository's root installs everything."""

from glob import glob

from setuptools import setup

NAME = "gantry_bringup"

setup(
    name=NAME,
    version="0.2.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", sorted(glob("launch/*.launch.py"))),
    ],
    zip_safe=True,
    license="Apache-2.0",
    description="Which Gantry nodes are started together, and how.",
)
