//! `segue generate`: generates files from the command definitions for `make install`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

/// Write man pages and shell completions into a directory.
#[derive(clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Target directory; `man1`, `bash`, `zsh` and `fish` are created in it
    directory: PathBuf,
}

/// Runs the verb, for all of `program`.
pub fn run(args: Args, program: Command) -> anyhow::Result<ExitCode> {
    let under = |name: &str| -> anyhow::Result<PathBuf> {
        let path = args.directory.join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    };
    // The program's, and one for each verb: segue-host(1).
    let mut built = shown(program.clone());
    built.build();
    clap_mangen::generate_to(built, under("man1")?).context("cannot write the man pages")?;
    for (shell, name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let into: &Path = &under(name)?;
        clap_complete::generate_to(shell, &mut shown(program.clone()), "segue", into)
            .with_context(|| format!("cannot write the completions of {name}"))?;
    }
    Ok(ExitCode::SUCCESS)
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
