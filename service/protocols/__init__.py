"""Protocols of others: the Open Inference Protocol, MLflow and SageMaker."""
