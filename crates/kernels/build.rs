//! Lists the kernel files and the machine files of the project.

fn main() -> std::io::Result<()> {
    highorder_listing::write("../../kernels")?;
    highorder_listing::write("../../machines")
}
