"""The demo of policies that walk to goals by a map."""
