"""Convolutional networks: filters that move over pictures and series, pooling, augmentation."""
