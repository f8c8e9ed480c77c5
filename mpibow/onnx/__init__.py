"""ONNX models in and out: nodes of a model become a net, and the nodes of a trained net become a model.

The package onnx is imported only when a model is read or written.
"""
