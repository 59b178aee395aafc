"""ROS 2 nodes around the Gantry runtime: conversion in one file, no maths."""
