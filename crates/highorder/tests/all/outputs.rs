//! What the program writes to: files, links, pipes, devices and folders of any kind, as root and as nobody.

use crate::common::{STATE, highorder, names, printed, project, refused, text};
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The verb that is quickest to write: a map of a recorded state, into one file.
const MAP: [&str; 4] = ["map", STATE, "--lines", "4"];

fn map_into(option: &str, name: &Path) -> Vec<String> {
    MAP.iter()
        .map(|word| (*word).to_owned())
        .chain([option.to_owned(), text(name).to_owned()])
        .collect()
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Everybody may write into it, so that nobody may.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("it is ours");
    folder
}

/// A shell's script with the program as `$P` and the state as `$S`, run in the folder by whoever runs the
/// tests, and again as nobody where that is root, in a folder of nobody's own. `check` judges each.
fn as_root_and_as_nobody(script: &str, check: impl Fn(&Path, &Output)) {
    let run = |command: &mut Command, folder: &Path| {
        let state = folder.join("state");
        copy(&project().join(STATE), &state);
        // Root's build folder may be closed to others.
        let program = folder.join("program");
        fs::copy(env!("CARGO_BIN_EXE_highorder"), &program).expect("a copy");
        let work = folder.join("work");
        fs::create_dir(&work).expect("a folder");
        fs::set_permissions(&work, Permissions::from_mode(0o777)).expect("it is ours");
        command.args(["sh", "-c", script]).env("P", &program).env("S", &state).current_dir(&work);
        (command.output(), work)
    };
    let own = folder();
    let (output, work) = run(&mut Command::new("env"), own.path());
    check(&work, &output.expect("a shell"));
    if !is_root() {
        return;
    }
    let nobodys = folder();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "env"]);
    match run(&mut command, nobodys.path()) {
        (Ok(output), work) if !output.stderr.starts_with(b"setpriv:") => check(&work, &output),
        (output, _) => eprintln!("SKIPPED as nobody: {output:?}"),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for name in names(from) {
        fs::copy(from.join(&name), to.join(&name)).expect("a copy");
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_character_device_is_written_into_not_replaced() {
    let script = "\"$P\" map \"$S\" --lines 4 --svg /dev/null && \"$P\" map \"$S\" --lines 4 --png /dev/null";
    as_root_and_as_nobody(script, |_, output| {
        assert!(output.status.success(), "{}", told(output));
        let null = fs::metadata("/dev/null").expect("the device");
        assert!(null.file_type().is_char_device(), "/dev/null is a device still");
    });
    // A node of our own, which could be replaced.
    let folder = folder();
    let node = folder.path().join("n.svg");
    let made = Command::new("mknod").arg(&node).args(["c", "1", "3"]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: mknod: only root makes device nodes");
        return;
    }
    for force in [&[][..], &["--force"]] {
        printed(&[&words(&map_into("--svg", &node))[..], force].concat());
        let is_device = |path: &Path| {
            fs::symlink_metadata(path).expect("the node").file_type().is_char_device()
        };
        assert!(is_device(&node), "{force:?}");
    }
    assert_eq!(names(folder.path()), ["n.svg"]);
}

#[test]
fn a_pipe_is_written_into_and_stays_a_pipe() {
    let script = "mkfifo pipe && (cat pipe > got & \"$P\" map \"$S\" --lines 4 --svg pipe > /dev/null; wait)";
    as_root_and_as_nobody(script, |work, output| {
        assert!(output.status.success(), "{}", told(output));
        let pipe = fs::symlink_metadata(work.join("pipe")).expect("the pipe");
        assert!(pipe.file_type().is_fifo());
        let got = fs::read_to_string(work.join("got")).expect("what came through");
        assert!(got.starts_with("<svg") && got.trim_end().ends_with("</svg>"));
    });
}

#[test]
fn standard_output_and_error_can_be_named_and_hold_what_was_asked_for_alone() {
    let script = "\"$P\" map \"$S\" --lines 4 --svg whole.svg > tables && \
                  \"$P\" map \"$S\" --lines 4 --svg /dev/stdout > out 2> told && \
                  \"$P\" map \"$S\" --lines 4 --svg /dev/stdout 2> /dev/null | cat > piped && \
                  \"$P\" map \"$S\" --lines 4 --svg /dev/stderr 2> err > /dev/null && \
                  \"$P\" map \"$S\" --lines 4 --svg /dev/fd/3 3> three > /dev/null";
    as_root_and_as_nobody(script, |work, output| {
        assert!(output.status.success(), "{}", told(output));
        let read = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
        // The pictures differ in the command that is told below them.
        for name in ["whole.svg", "out", "piped", "three"] {
            let found = read(name);
            let end = found.trim_end();
            assert!(found.starts_with("<svg") && end.ends_with("</svg>"), "{name}: {found:.80}");
        }
        assert!(read("told").contains("order  free memory"), "tables go to standard error then");
        assert!(read("err").starts_with("<svg"));
    });
}

#[test]
fn process_substitution_is_written_into() {
    let folder = folder();
    let script = format!(
        "'{}' map '{}' --lines 4 --svg >(cat > got) > /dev/null && wait $!",
        env!("CARGO_BIN_EXE_highorder"),
        project().join(STATE).display()
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no bash");
        return;
    };
    assert!(output.status.success(), "{}", told(&output));
    let got = fs::read_to_string(folder.path().join("got")).expect("what came through");
    assert!(got.trim_end().ends_with("</svg>"));
}

#[test]
fn a_file_that_is_there_is_replaced_by_force_alone_and_keeps_its_rights() {
    let folder = folder();
    let path = folder.path().join("map.svg");
    fs::write(&path, "precious").expect("a file");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("it is ours");
    if is_root() {
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("root may");
    }
    let owner = fs::metadata(&path).expect("the file").uid();
    let arguments = map_into("--svg", &path);
    let complaint = refused(&words(&arguments));
    assert_eq!(
        complaint,
        format!("error: {}: is there already; --force replaces it\n", path.display())
    );
    assert_eq!(fs::read(&path).expect("the file"), b"precious");
    printed(&[&words(&arguments)[..], &["--force"]].concat());
    assert!(fs::read_to_string(&path).expect("the file").starts_with("<svg"));
    let found = fs::metadata(&path).expect("the file");
    assert_eq!((found.mode() & 0o777, found.uid()), (0o640, owner));
    assert_eq!(names(folder.path()), ["map.svg"], "nothing else is left behind");
}

#[test]
fn a_link_is_followed_and_what_it_leads_to_is_written() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("far")).expect("a folder");
    // A chain, relative and absolute; it dangles at first.
    symlink("second.svg", at("first.svg")).expect("a link");
    symlink(at("far/target.svg"), at("second.svg")).expect("a link");
    let arguments = map_into("--svg", &at("first.svg"));
    printed(&words(&arguments));
    let is_link = |name: &str| fs::symlink_metadata(at(name)).expect("a link").is_symlink();
    assert!(is_link("first.svg") && is_link("second.svg"));
    let target = || fs::read_to_string(at("far/target.svg")).expect("the target");
    assert!(target().starts_with("<svg"));
    fs::write(at("far/target.svg"), "precious").expect("a file");
    assert!(refused(&words(&arguments)).contains("first.svg: is there already; --force"));
    assert_eq!(target(), "precious");
    printed(&[&words(&arguments)[..], &["--force"]].concat());
    assert!(target().starts_with("<svg") && is_link("first.svg") && is_link("second.svg"));
    assert_eq!(names(&at("far")), ["target.svg"]);

    symlink("b.svg", at("a.svg")).expect("a link");
    symlink("a.svg", at("b.svg")).expect("a link");
    let complaint = refused(&words(&map_into("--svg", &at("a.svg"))));
    assert!(
        complaint.contains("a.svg: cannot write: a symbolic link that leads through"),
        "{complaint}"
    );
}

#[test]
fn what_cannot_be_written_to_is_refused_by_what_it_is() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder.svg")).expect("a folder");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.svg")).expect("a socket");
    for (name, found) in [
        ("folder.svg", "a directory"),
        ("socket.svg", "a socket"),
        ("new.svg/", "the name of a folder"),
        ("no/such/new.svg", "there is no folder"),
    ] {
        for force in [&[][..], &["--force"]] {
            let arguments = map_into("--svg", &at(name));
            let complaint = refused(&[&words(&arguments)[..], force].concat());
            assert!(complaint.contains(&format!("{name}: cannot write: {found}")), "{complaint}");
            assert_eq!(complaint.lines().count(), 1, "{complaint}");
        }
    }
    assert_eq!(names(folder.path()), ["folder.svg", "socket.svg"]);
}

#[test]
fn a_folder_of_others_is_refused_for_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let closed = folder.path().join("closed.svg");
    let script = format!("\"$P\" map \"$S\" --lines 4 --svg '{}'", closed.display());
    as_root_and_as_nobody(&script, |work, output| {
        // Root's own run comes first, and may write there.
        if output.status.success() {
            fs::remove_file(&closed).expect("it was written");
            return;
        }
        let complaint = told(output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains("closed.svg: cannot write: Permission denied"), "{complaint}");
        assert!(output.stdout.is_empty(), "nothing is drawn before");
        assert!(names(work).is_empty());
    });
}

#[test]
fn a_limit_of_file_sizes_and_a_full_disk_are_told_in_one_message() {
    let script = "ulimit -f 8; \"$P\" map \"$S\" --lines 4 --svg big.svg > /dev/null";
    as_root_and_as_nobody(script, |work, output| {
        let complaint = told(output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert_eq!(complaint, "error: big.svg: cannot write: File too large (os error 27)\n");
        assert!(names(work).is_empty(), "nothing is left behind: {:?}", names(work));
    });
    as_root_and_as_nobody("ulimit -f 0; \"$P\" map \"$S\" > out", |_, output| {
        let complaint = told(output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert_eq!(
            complaint,
            "error: standard output: cannot write: File too large (os error 27)\n"
        );
    });
    as_root_and_as_nobody("\"$P\" map \"$S\" --lines 4 --svg /dev/full", |_, output| {
        let complaint = told(output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        let expected = "error: /dev/full: cannot write: No space left on device (os error 28)\n";
        assert_eq!(complaint, expected);
    });
    as_root_and_as_nobody("\"$P\" map \"$S\" > /dev/full", |_, output| {
        let complaint = told(output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        let expected =
            "error: standard output: cannot write: No space left on device (os error 28)\n";
        assert_eq!(complaint, expected);
    });
}

#[test]
fn a_store_that_meets_the_limit_of_file_sizes_says_so() {
    let script = "ulimit -f 8; \"$P\" run mmap-demo --scale 1/64 --workers 1 > /dev/null";
    as_root_and_as_nobody(script, |work, output| {
        let complaint = told(output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains("File too large (os error 27)"), "{complaint}");
        let parts = names(&work.join("highorder-store"));
        assert!(!parts.iter().any(|name| name.starts_with(".part-")), "{parts:?}");
    });
}

#[test]
fn a_reader_that_leaves_a_pipe_ends_the_program_quietly() {
    let script = "(\"$P\" map \"$S\" --lines 4 --svg /dev/stdout 2> told; echo $? > first) | head -c 5 > /dev/null; \
                  mkfifo pipe; head -c 5 pipe > /dev/null & \
                  \"$P\" map \"$S\" --lines 4 --svg pipe > /dev/null; echo $? > second; wait";
    as_root_and_as_nobody(script, |work, output| {
        for code in ["first", "second"] {
            assert_eq!(fs::read_to_string(work.join(code)).expect("a code"), "0\n", "{code}");
        }
        assert_eq!(told(output), "wrote pipe\n");
    });
}

#[test]
fn outputs_are_refused_before_anything_runs() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let store = at("store");
    let run = ["run", "mmap-demo", "--scale", "1/64", "--store", text(&store)];
    fs::write(at("there.png"), "precious").expect("a file");
    fs::write(at("file"), "").expect("a file");
    let (there, missing) = (at("there.png"), at("missing/out.png"));
    let below = at("file/below");
    for (more, expected) in [
        (["--out", text(&there)], "there.png: is there already; --force replaces it"),
        (["--out", text(&missing)], "missing/out.png: cannot write: there is no folder"),
        (["--trace", text(&there)], "there.png is no folder, expected a folder"),
        (["--trace", text(&below)], "below: cannot write: "),
    ] {
        let complaint = refused(&[&run[..], &more].concat());
        assert!(complaint.contains(expected), "{more:?}: {complaint}");
        assert!(!store.exists(), "{more:?}: nothing has run");
    }
    let reproduce = ["reproduce", "--only", "002", "--scale", "1/64", "--store", text(&store)];
    for option in ["--out", "--picture"] {
        let complaint = refused(&[&reproduce[..], &[option, text(&there)]].concat());
        assert!(complaint.contains("there.png: is there already"), "{complaint}");
        assert!(!store.exists());
    }
    for verb in [
        &["calibrate", "--out"][..],
        &["validate", "--picture"],
        &["trace", "tests/data/recordings/612-rec-compact/trace.txt.zst", "--picture"],
        &["snapshot", "--way", "counts", "-o"],
        &["compare", "small:*", "--out"],
    ] {
        let complaint = refused(&[verb, &[text(&there)]].concat());
        assert!(complaint.contains("there.png: is there already; --force"), "{complaint}");
    }
    assert_eq!(fs::read(&there).expect("the file"), b"precious");
}

#[test]
fn files_in_a_folder_of_pictures_or_pages_obey_the_same_rule() {
    let folder = folder();
    let pictures = folder.path().join("pictures");
    let compact = "tests/data/recordings/612-rec-compact";
    let replay = ["replay", compact, "--then", "compact_memory", "--png-dir", text(&pictures)];
    printed(&replay);
    let free = pictures.join("free-blocks.png");
    fs::write(&free, "precious").expect("a file");
    for name in names(&pictures) {
        if name != "free-blocks.png" {
            fs::remove_file(pictures.join(name)).expect("a picture");
        }
    }
    let complaint = refused(&replay);
    assert!(complaint.contains("free-blocks.png: is there already; --force"), "{complaint}");
    assert_eq!(names(&pictures), ["free-blocks.png"]);
    assert_eq!(fs::read(&free).expect("the file"), b"precious");
    printed(&[&replay[..], &["--force"]].concat());
    assert!(fs::read(&free).expect("the file").starts_with(b"\x89PNG"));

    let pages = folder.path().join("man");
    highorder(&["man", text(&pages)]).assert().success();
    assert!(refused(&["man", text(&pages)]).contains("highorder.1: is there already; --force"));
    highorder(&["man", text(&pages), "--force"]).assert().success();
}

#[test]
fn a_picture_for_a_pipe_may_have_any_name_and_is_a_png() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo(1)");
    assert!(made.success());
    let trace = "tests/data/recordings/612-rec-compact/trace.txt.zst";
    let mut child = Command::new(env!("CARGO_BIN_EXE_highorder"))
        .current_dir(project())
        .args(["trace", trace, "--picture", text(&pipe)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut got = Vec::new();
    fs::File::open(&pipe).and_then(|mut pipe| pipe.read_to_end(&mut got)).expect("the pipe");
    assert!(child.wait().expect("a child").success());
    assert!(got.starts_with(b"\x89PNG"));
    let plain: PathBuf = folder.path().join("plain");
    let complaint = refused(&["trace", trace, "--picture", text(&plain)]);
    assert!(complaint.contains("plain: expected a name that ends in .png or .svg"), "{complaint}");
}
