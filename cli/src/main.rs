//! x
mod exit;
mod failure;
mod input;
mod interrupt;
mod key;
mod size;
fn main() {}
