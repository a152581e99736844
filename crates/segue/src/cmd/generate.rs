//! `segue generate`: generates files from the definitions of commands and keys, for `make install` and the documentation.

mod keys;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use super::check::kind_parser;
use super::roles::{self, Daemon, Kind};

/// Write man pages, shell completions and units of systemd into a directory.
#[derive(clap::Args)]
#[command(hide = true, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    /// Target directory; `man1`, `bash`, `zsh`, `fish` and `systemd` are created in it
    #[arg(required = true)]
    directory: Option<PathBuf>,
    #[command(subcommand)]
    what: Option<What>,
}

/// What is generated from the declarations of keys.
#[derive(clap::Subcommand)]
enum What {
    /// Print the JSON Schema of a kind of file, for editors
    Schema {
        /// The kind of file
        #[arg(value_parser = kind_parser())]
        kind: Kind,
    },
    /// Write the tables of keys into pages of the documentation
    Keys {
        /// The pages
        #[arg(required = true)]
        pages: Vec<PathBuf>,
    },
}

/// Runs the verb for all verbs of `program`.
pub fn run(args: Args, program: Command) -> anyhow::Result<ExitCode> {
    match args.what {
        Some(What::Schema { kind }) => println!("{:#}", keys::schema(kind)),
        Some(What::Keys { pages }) => pages.iter().try_for_each(|page| keys::write(page))?,
        None => manual(&args.directory.unwrap_or_default(), program)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes man pages and completions.
fn manual(directory: &Path, program: Command) -> anyhow::Result<()> {
    let under = |name: &str| -> anyhow::Result<PathBuf> {
        let path = directory.join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    };
    // One page for the program and one for each verb, such as segue-host(1).
    let mut built = shown(program.clone());
    built.build();
    let pages = under("man1")?;
    clap_mangen::generate_to(built, &pages)
        .and_then(|()| append_files(&pages))
        .context("cannot write the man pages")?;
    for (shell, name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let into: &Path = &under(name)?;
        clap_complete::generate_to(shell, &mut shown(program.clone()), "segue", into)
            .with_context(|| format!("cannot write the completions of {name}"))?;
    }
    let units = under("systemd")?;
    for role in roles::installed() {
        let unit = units.join(format!("segue-{}.service", role.name));
        std::fs::write(unit, role.unit().unwrap_or_default()).context("cannot write the units")?;
    }
    Ok(())
}

/// Appends the section FILES to the pages of the program and of each daemon.
fn append_files(pages: &Path) -> std::io::Result<()> {
    let append = |page: &str, text: String| {
        let mut page = File::options().append(true).open(pages.join(format!("{page}.1")))?;
        page.write_all(text.replace('-', "\\-").as_bytes())
    };
    for (role, daemon) in roles::daemons().filter(|(role, _)| role.file.is_some()) {
        append(&format!("segue-{}", role.name), files(role.name, daemon))?;
    }
    let all = [
        ("/etc/segue", "Configurations of the daemons, one for each role."),
        ("/var/lib/segue", "State of the daemons, and the logs of their events."),
        ("/run/segue", "Control sockets."),
        ("/usr/share/doc/segue", "Documentation and examples."),
    ];
    append("segue", section(&all.map(|(path, what)| (path.to_owned(), what))))
}

/// The files of a daemon.
fn files(role: &str, daemon: &Daemon) -> String {
    let mut all = vec![(
        super::default_file(role).display().to_string(),
        "Configuration, unless --config names another file. A line \"#key = value\" shows the default.",
    )];
    all.extend(daemon.files.iter().map(|(path, what)| ((*path).to_owned(), *what)));
    if daemon.keeps_state {
        all.push((
            format!("/var/lib/segue/{role}.db"),
            "State, unless --state names another file.",
        ));
        let log = "Log of events, beside the state; \"segue events --since\" reads it.";
        all.push((format!("/var/lib/segue/{role}.events"), log));
    }
    all.push((
        format!("/run/segue/{role}.sock"),
        "Control socket, for \"segue status\" and others.",
    ));
    let docs = "Every key of the configuration.";
    all.push(("/usr/share/doc/segue/docs/configuration.md".into(), docs));
    section(&all)
}

/// A section FILES in the markup of man pages.
fn section(all: &[(String, &str)]) -> String {
    let entry = |(path, what): &(String, &str)| format!(".TP\n\\fI{path}\\fR\n{what}\n");
    std::iter::once(".SH FILES\n".to_owned()).chain(all.iter().map(entry)).collect()
}

/// The program without its hidden verbs.
fn shown(program: Command) -> Command {
    let verbs: Vec<Command> =
        program.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let about = program.get_about().cloned().unwrap_or_default();
    Command::new("segue")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .disable_help_subcommand(true)
        .subcommands(verbs)
}
