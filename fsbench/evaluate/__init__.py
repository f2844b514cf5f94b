"""Evaluation: methods over many tasks, statistics, tuning."""
