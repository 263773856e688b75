//! Lists the kernel files of the project.

fn main() -> std::io::Result<()> {
    highorder_listing::write("../../kernels")
}
