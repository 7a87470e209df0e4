//! Tests of open files.
