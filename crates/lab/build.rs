//! Lists the experiment files of the project.

fn main() -> std::io::Result<()> {
    highorder_listing::write("../../experiments")
}
