"""The software switch: slot logic, jobs and admission, UDP ports, control service."""
