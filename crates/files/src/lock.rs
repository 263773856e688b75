//! Who holds a lock.

use rustix::fs::{fstat, major, minor};
use std::fs;
use std::os::fd::AsFd;

/// The process that holds a lock on this file, as messages name it: `process 123 (highorder)`.
#[must_use]
pub fn lock_holder(file: impl AsFd) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = fstat(file).ok().and_then(|found| {
        let place =
            format!("{:02x}:{:02x}:{}", major(found.st_dev), minor(found.st_dev), found.st_ino);
        holder_of(&place, &locks)
    });
    match pid {
        // Of a process that is not below this one's `/proc`, as in another container, the number is 0.
        Some(pid) if pid > 0 => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        }
        _ => "a process that this system does not name".to_owned(),
    }
}

/// The number of the process that holds a lock on the file at this place: fs/locks.c (`lock_get_status`).
fn holder_of(place: &str, locks: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // Those who wait have an arrow.
        let is_held = words.get(1) != Some(&"->");
        let [_, _, _, _, pid, at, ..] = words[..] else { return None };
        (is_held && at == place).then(|| pid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_a_lock_is_named() {
        let file = tempfile::tempfile().unwrap();
        assert!(lock_holder(&file).starts_with("a process that"), "{}", lock_holder(&file));
        file.lock().unwrap();
        let expected = format!("process {} (", std::process::id());
        assert!(lock_holder(&file).starts_with(&expected), "{}", lock_holder(&file));
    }

    #[test]
    fn those_who_wait_are_no_holders() {
        let locks = "1: -> FLOCK  ADVISORY  WRITE 7 fe:00:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 fe:00:42 0 EOF\n";
        assert_eq!(holder_of("fe:00:42", locks), Some(8));
        assert_eq!(holder_of("fe:00:43", locks), None);
    }
}
