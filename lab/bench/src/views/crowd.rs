//! The views that are posted: videos by Zipf's law, and a new user for each view, so that each pair is new and has to be kept.
//! Their JSON is prepared; only the digits of the user change from one use to the next.

use crate::zipf::Shares;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;

/// Views that are drawn ahead.
const DRAWN: usize = 1 << 16;
const USER_DIGITS: usize = 10;
/// When all of them happen: it decides nothing.
const TIMESTAMP: &str = "2026-11-27T08:00:00.123Z";

/// Views in a drawn order.
pub(super) struct Drawn {
    /// The videos, as text of one length.
    videos: Vec<String>,
    /// The bodies in their order, all of one length.
    bodies: Vec<u8>,
    body_bytes: usize,
    user_at: usize,
}

impl Drawn {
    /// Views of this number of videos; the n-th gets a share proportional to 1/n.
    pub(super) fn new(videos: usize) -> Arc<Drawn> {
        let (shares, mut rng) = (Shares::zipf(videos), SmallRng::seed_from_u64(1));
        let videos: Vec<String> = (0..DRAWN).map(|_| video(shares.draw(&mut rng))).collect();
        let body_of = |video: &String| body(video, &"0".repeat(USER_DIGITS));
        let first = body_of(&videos[0]);
        let user_at = first.find("user-").map_or(0, |at| at + "user-".len());
        let bodies = videos.iter().map(body_of).collect::<String>().into_bytes();
        Arc::new(Drawn { body_bytes: first.len(), bodies, videos, user_at })
    }

    /// The video of the n-th view.
    pub(super) fn video(&self, number: u64) -> &str {
        &self.videos[number as usize % DRAWN]
    }

    /// The bytes of one view in the log: of its time, three lengths, the namespace, the video and the user.
    pub(super) fn log_bytes(&self) -> usize {
        11 + "default".len() + self.videos[0].len() + "user-".len() + USER_DIGITS
    }
}

fn video(number: usize) -> String {
    format!("video-{number:08}")
}

/// The JSON of a view.
pub(super) fn body(video: &str, user: &str) -> String {
    format!(r#"{{"videoId":"{video}","userId":"user-{user}","timestamp":"{TIMESTAMP}"}}"#)
}

/// The views of one connection.
pub(super) struct Crowd {
    drawn: Arc<Drawn>,
    next: u64,
    step: u64,
}

impl Crowd {
    /// The views whose numbers are `first` and every `step`-th after it; the number of a view is its user.
    pub(super) fn new(drawn: &Arc<Drawn>, first: u64, step: u64) -> Crowd {
        Crowd { drawn: drawn.clone(), next: first, step }
    }

    /// Appends the JSON of the next view.
    pub(super) fn append(&mut self, to: &mut Vec<u8>) {
        let Drawn { bodies, body_bytes, user_at, .. } = &*self.drawn;
        let place = (self.next % DRAWN as u64) as usize * body_bytes;
        let at = to.len() + user_at;
        to.extend_from_slice(&bodies[place..place + body_bytes]);
        let mut number = self.next;
        for digit in to[at..at + USER_DIGITS].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.next += self.step;
    }

    /// Appends the JSON of a batch.
    pub(super) fn append_batch(&mut self, views: usize, to: &mut Vec<u8>) {
        to.extend(br#"{"views":["#);
        for number in 0..views {
            if number > 0 {
                to.push(b',');
            }
            self.append(to);
        }
        to.extend(b"]}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_view_has_another_user_and_the_video_of_its_number() {
        let drawn = Drawn::new(50);
        let mut users = HashSet::new();
        for connection in 0..2 {
            let mut crowd = Crowd::new(&drawn, 70_000 + connection, 2);
            let mut batch = Vec::new();
            crowd.append_batch(100, &mut batch);
            let batch: serde_json::Value = serde_json::from_slice(&batch).unwrap();
            for (place, view) in batch["views"].as_array().unwrap().iter().enumerate() {
                let number = 70_000 + connection + 2 * place as u64;
                assert_eq!(view["userId"], format!("user-{number:010}"));
                assert_eq!(view["videoId"], drawn.video(number));
                assert!(users.insert(number));
            }
        }
    }
}
