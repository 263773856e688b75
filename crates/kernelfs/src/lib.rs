//! The kernel's text and binary formats, read and written.
