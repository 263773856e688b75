//! Pictures and tables of memory.
