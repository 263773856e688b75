//! Kernel files, recordings and their replay.
