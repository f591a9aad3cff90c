//! Names, modes and contents that are not the usual ones, compared byte by byte.

use nabu_hub::response::ErrorType;
use nabu_tests::intents::{BINDINGS, OBSOLETE};
use nabu_tests::test_forge::bytes::NewFile;
use nabu_tests::test_forge::git::{EXECUTABLE, PLAIN, SYMLINK};

use crate::bed::{Bed, of_mode};
use crate::forges::{LONGEST_PATH, Server};

/// Names that mean something to an address, a shell, a query or git.
const NAMES: [&str; 16] = [
    "clusters/prod eu/späti ✓.yaml",
    " leading/ space.yaml",
    "a+b&c=d#e?f%20g.yaml",
    "100%/%2e%2E%2F%zz.txt",
    "dash/--all",
    "dots..and...more",
    "quo\"te'`.yaml",
    "UPPER/Lower/.hidden",
    "日本/語.yaml",
    "e\u{301}.yaml",
    "{braces}/$dollar/[x]*.yaml",
    ":(top)name/HEAD",
    "~tilde^caret:colon@{0}.yaml",
    "<a href=x>;|&.yaml",
    "\u{1f512}.yaml",
    "empty.txt",
];

/// A path of so many bytes.
fn long(bytes: usize) -> String {
    let mut path = ["n"; 4].map(|letter| letter.repeat(255)).join("/");
    path.truncate(bytes);
    path
}

pub(crate) async fn unusual_names_and_contents_arrive_byte_for_byte(bed: Bed<impl Server>) {
    let contents = "\u{0}\u{1}\u{7f}\r\nno line end: {{ }} ${x} \u{feff}\u{1f9ff}";
    let longest = long(bed.differs().longest_path);
    let names: Vec<&str> = NAMES.into_iter().chain([longest.as_str()]).collect();
    let content = |name| Some(if name == "empty.txt" { "" } else { contents });
    let there = bed.files("main").len();

    let files: Vec<_> = names.iter().map(|name| (*name, content(*name))).collect();
    let made = bed.intent("u-1", &files);
    assert_eq!(bed.pull(&made).await.1, bed.differs().open);
    for (name, wanted) in files {
        let bytes = bed.bytes(&made.branch, name);
        assert_eq!(bytes.as_deref(), wanted.map(str::as_bytes), "{name}");
    }
    assert_eq!(bed.files(&made.branch).len(), there + names.len());
    assert_eq!(bed.pull(&made).await.1, 1);
    bed.server.merge(1).await;
    bed.nothing(&bed.intent("u-2", &[(NAMES[2], Some(contents))]))
        .await;

    let files: Vec<_> = names.iter().map(|name| (*name, Some("new\n"))).collect();
    let written = bed.intent("u-3", &files);
    assert_eq!(bed.pull(&written).await.1, bed.differs().open);
    for name in &names {
        let file = bed.file(&written.branch, name);
        assert_eq!(file.as_deref(), Some("new\n"), "{name}");
    }

    let files: Vec<_> = names.iter().map(|name| (*name, None)).collect();
    let away = bed.intent("u-4", &files);
    assert_eq!(bed.pull(&away).await.1, bed.differs().open);
    assert_eq!(bed.files(&away.branch).len(), there);
}

pub(crate) async fn a_path_that_begins_with_a_dash_is_written_or_refused(bed: Bed<impl Server>) {
    for (uid, path) in [("u-1", "-dash.yaml"), ("u-2", "--all/x")] {
        let intent = bed.intent(uid, &[(path, Some("x\n")), (OBSOLETE, None)]);
        if bed.differs().dash_first {
            bed.pull(&intent).await;
            assert_eq!(bed.file(&intent.branch, path).as_deref(), Some("x\n"));
        } else {
            let detail = bed.fails(&intent, ErrorType::Permanent, "Rejected").await;
            assert!(detail.contains("that begins with a dash"), "{detail}");
            assert_eq!(bed.branches(), ["main"]);
        }
    }
}

pub(crate) async fn a_path_that_is_too_long_for_the_forge_is_refused(bed: Bed<impl Server>) {
    let path = long(LONGEST_PATH);
    for contents in [Some("x\n"), None] {
        let intent = bed.intent("u-1", &[(&path, contents), (OBSOLETE, None)]);
        if bed.differs().longest_path < LONGEST_PATH {
            bed.fails(&intent, ErrorType::Permanent, "Rejected").await;
            assert_eq!(bed.branches(), ["main"]);
        } else {
            bed.pull(&intent).await;
        }
    }
}

pub(crate) async fn binary_files_stay_are_replaced_and_go(bed: Bed<impl Server>) {
    let binary: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let names = ["logo/stays.png", "logo/replaced.png", "logo/goes.png"];
    let files = names.map(|name| of_mode(PLAIN, name, &binary));
    bed.commit("main", "main", "Add pictures", &files).await;

    let intent = bed.intent(
        "u-1",
        &[
            ("logo/replaced.png", Some("text now\n")),
            ("logo/goes.png", None),
            ("logo/new.yaml", Some("kind: New\n")),
        ],
    );
    assert_eq!(bed.pull(&intent).await.1, bed.differs().open);

    let bytes = |name| bed.bytes(&intent.branch, name);
    assert!(bytes("logo/stays.png") == Some(binary), "it has changed");
    let replaced = bytes("logo/replaced.png");
    assert_eq!(replaced.as_deref(), Some(b"text now\n".as_slice()));
    assert_eq!(bytes("logo/goes.png"), None);
    let new = bytes("logo/new.yaml");
    assert_eq!(new.as_deref(), Some(b"kind: New\n".as_slice()));
}

pub(crate) async fn names_that_are_no_text_stay_beside_ours(bed: Bed<impl Server>) {
    let odd: [&[u8]; 3] = [
        b"clusters/prod-eu/latin-\xe4\xf6.yaml",
        b"\xff\xfe/\x80",
        b"clusters/prod-eu/new\nline\ttab.yaml",
    ];
    let files = odd.map(|path| NewFile {
        path,
        mode: PLAIN,
        content: Some(b"\x00\xff"),
    });
    bed.commit("main", "main", "Add odd names", &files).await;
    let before = bed.files("main");

    let changes = [
        (BINDINGS, Some("bindings: []\n")),
        (OBSOLETE, None),
        ("clusters/prod-eu/new.yaml", Some("kind: New\n")),
    ];
    let intent = bed.intent("u-1", &changes);
    assert_eq!(bed.pull(&intent).await.1, bed.differs().open);

    let after = bed.files(&intent.branch);
    for path in odd {
        assert_eq!(after.get(path), before.get(path), "{path:?}");
    }
    assert_eq!(after.len(), before.len());
    assert_eq!(bed.pull(&intent).await.1, 1);
}

pub(crate) async fn executable_files_keep_their_mode(bed: Bed<impl Server>) {
    let names = ["bin/run.sh", "bin/stays.sh", "bin/goes.sh"];
    let files = names.map(|name| of_mode(EXECUTABLE, name, b"#!/bin/sh\n"));
    bed.commit("main", "main", "Add programs", &files).await;
    let run = "#!/bin/sh\nexit 0\n";
    let intent = bed.intent(
        "u-1",
        &[
            ("bin/run.sh", Some(run)),
            ("bin/goes.sh", None),
            ("bin/new.sh", Some(run)),
        ],
    );
    assert_eq!(bed.pull(&intent).await.1, bed.differs().open_executable);
    assert_eq!(bed.file(&intent.branch, "bin/run.sh").as_deref(), Some(run));
    let mode = |path| bed.mode(&intent.branch, path);
    assert_eq!(mode("bin/run.sh").as_deref(), Some(EXECUTABLE));
    assert_eq!(mode("bin/stays.sh").as_deref(), Some(EXECUTABLE));
    assert_eq!(mode("bin/goes.sh"), None);
    assert_eq!(mode("bin/new.sh").as_deref(), Some(PLAIN));
    assert_eq!(mode(BINDINGS).as_deref(), Some(PLAIN));
    bed.nothing(&bed.intent("u-2", &[("bin/run.sh", Some("#!/bin/sh\n"))]))
        .await;
}

pub(crate) async fn a_link_is_never_written_to_and_can_go(bed: Bed<impl Server>) {
    let link = of_mode(SYMLINK, "dir/link", b"run.sh");
    let dangling = of_mode(SYMLINK, "dir/dangling", b"/etc/passwd");
    bed.commit("main", "main", "Add links", &[link, dangling])
        .await;
    for path in ["dir/link", "dir/dangling"] {
        for contents in ["/etc/passwd", "run.sh"] {
            let intent = bed.intent("u-1", &[(path, Some(contents))]);
            let detail = bed.fails(&intent, ErrorType::Permanent, "NotAFile").await;
            for words in [
                path,
                " is a symbolic link, no file; create a new EventResponse that names a file",
            ] {
                assert!(detail.contains(words), "{detail}");
            }
            assert!(!bed.branches().contains(&intent.branch), "{path}");
        }
    }
    let away = bed.intent("u-2", &[("dir/link", None)]);
    bed.pull(&away).await;
    assert_eq!(bed.mode(&away.branch, "dir/link"), None);
    let stays = bed.mode(&away.branch, "dir/dangling");
    assert_eq!(stays.as_deref(), Some(SYMLINK));
}

pub(crate) async fn a_file_takes_the_place_of_no_folder_and_goes_through_no_file(
    bed: Bed<impl Server>,
) {
    let onto = bed.intent("u-1", &[("clusters/prod-eu", Some("x"))]);
    let detail = bed.fails(&onto, ErrorType::Permanent, "NotAFile").await;
    assert!(detail.contains("clusters/prod-eu"), "{detail}");
    assert!(detail.contains("is a folder, no file"), "{detail}");
    let path = format!("{BINDINGS}/x");
    let through = bed.intent("u-2", &[(&path, Some("x"))]);
    bed.fails(&through, ErrorType::Permanent, "Rejected").await;
    assert_eq!(bed.branches(), ["main"]);
}
