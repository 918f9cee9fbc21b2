//! A session store: tokens that expire, are renewed while they are used, and are ended at a logout.
//!
//! `cargo run --example sessions`

use std::time::Duration;

use braid::{Database, Structure, Swap, Table};

const LIFETIME: Duration = Duration::from_secs(30 * 60);

struct Sessions {
    tokens: Table,
}

impl Sessions {
    fn open(db: &Database) -> braid::Result<Self> {
        Ok(Self { tokens: db.table("sessions", Structure::BTree)? })
    }

    /// Begins a session. A token that is taken is refused, so two users never share one.
    fn begin(&self, token: &str, user: &str) -> braid::Result<bool> {
        Ok(self.tokens.put_if_absent_expiring(token, user, LIFETIME)? == Swap::Done)
    }

    /// The user of a session, which lives on from now. None where the session is over.
    fn touch(&self, token: &str) -> braid::Result<Option<String>> {
        // A logout meanwhile is not undone: what is not there any more is not renewed.
        if !self.tokens.renew(token, LIFETIME)? {
            return Ok(None);
        }
        Ok(self.tokens.get(token)?.map(|user| String::from_utf8_lossy(&user).into_owned()))
    }

    fn end(&self, token: &str) -> braid::Result<()> {
        self.tokens.delete(token)?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Database::open(directory.path().join("sessions"))?;
    let sessions = Sessions::open(&db)?;
    assert!(sessions.begin("f3a1", "ada")?);
    assert!(!sessions.begin("f3a1", "grace")?, "the token is taken");
    println!("session f3a1 is of {:?}", sessions.touch("f3a1")?);
    sessions.end("f3a1")?;
    println!("after the logout of {:?}", sessions.touch("f3a1")?);
    Ok(db.close()?)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use braid::{ManualClock, Options};

    use super::*;

    #[test]
    fn it_runs() {
        main().expect("it runs");
    }

    #[test]
    fn a_session_lives_while_it_is_used() -> braid::Result<()> {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = ManualClock::new(SystemTime::now());
        let db = Options::new().clock(clock.clone()).open(directory.path().join("db"))?;
        let sessions = Sessions::open(&db)?;
        sessions.begin("token", "ada")?;
        for _ in 0..5 {
            clock.advance(LIFETIME - Duration::from_secs(1));
            assert_eq!(sessions.touch("token")?.as_deref(), Some("ada"));
        }
        clock.advance(LIFETIME);
        assert_eq!(sessions.touch("token")?, None);
        Ok(())
    }
}
