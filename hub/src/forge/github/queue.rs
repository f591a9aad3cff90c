//! Lookups that wait together go in one document: while one is under way, the next ones gather.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::super::http::failed;
use super::super::metrics::Operation;
use super::super::text::one_line;
use super::super::{ForgeError, Job};
use super::account::Account;
use super::lookup::{self, Document, Found, Question};
use crate::response::ErrorType;

/// Questions in one document.
const MOST_QUESTIONS: usize = 20;

/// The weight of one document, see [`Question::weight`]; GitHub bounds how long it works on one.
const MOST_WEIGHT: usize = 400;

/// Questions of one credential that wait.
#[derive(Debug, Default)]
pub(super) struct LookupQueue {
    waiting: Mutex<Vec<Waiting>>,
    sending: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    question: Question,
    answer: oneshot::Sender<Result<Found, ForgeError>>,
}

impl LookupQueue {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, question: &Question) -> oneshot::Receiver<Result<Found, ForgeError>> {
        let (answer, receiver) = oneshot::channel();
        self.waiting().push(Waiting {
            question: question.clone(),
            answer,
        });
        receiver
    }

    /// The oldest questions that fit into one document, at least one if any waits.
    fn gather(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        waiting.retain(|one| !one.answer.is_closed());
        let mut weight = 0;
        let fits = waiting.iter().take(MOST_QUESTIONS).take_while(|one| {
            weight += one.question.weight();
            weight <= MOST_WEIGHT
        });
        let count = fits.count().max(1).min(waiting.len());
        waiting.drain(..count).collect()
    }
}

impl Account {
    /// Asks a question, in one document with all others that wait. Whoever sends it pays for the request.
    pub(super) async fn ask(
        &self,
        job: &Job<'_>,
        question: &Question,
    ) -> Result<Found, ForgeError> {
        let queue = self.lookups();
        let mut answer = queue.join(question);
        loop {
            let _sending = queue.sending.lock().await;
            match answer.try_recv() {
                Ok(answer) => return answer,
                // Whoever had it was stopped on the way.
                Err(oneshot::error::TryRecvError::Closed) => answer = queue.join(question),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let together = queue.gather();
            let questions: Vec<&Question> = together.iter().map(|one| &one.question).collect();
            let mut answers = self.ask_together(job, &questions).await;
            // One question may be too much for the forge: the others have no part in that.
            if questions.len() > 1 && matches!(answers, Err(ForgeError::Failed(_))) {
                let mut alone = Vec::with_capacity(questions.len());
                for question in &questions {
                    let answer = self.ask_together(job, &[*question]).await;
                    alone.push(answer.and_then(|mut answers| answers.remove(0)));
                }
                answers = Ok(alone);
            }
            for (number, one) in together.into_iter().enumerate() {
                let answer = match &answers {
                    Ok(answers) => answers[number].clone(),
                    Err(error) => Err(error.clone()),
                };
                // Nobody waits any more if the attempt was stopped.
                let _ = one.answer.send(answer);
            }
        }
    }

    async fn ask_together(
        &self,
        job: &Job<'_>,
        questions: &[&Question],
    ) -> Result<Vec<Result<Found, ForgeError>>, ForgeError> {
        let (document, variables) = Document::of(questions);
        let answer = self
            .graphql(job, Operation::Lookup, &document, variables)
            .await?;
        let general = answer.general_error();
        let found = questions.iter().enumerate().map(|(number, question)| {
            let alias = format!("r{number}");
            // What is missing inside of a repository (a label, a file) is null without an error, or with one that says so.
            let serious = answer
                .errors_of(&alias)
                .find(|error| !error.is("NOT_FOUND"))
                .or(general);
            if let Some(error) = serious {
                return Err(self.explain(error));
            }
            lookup::found(&answer.data, number, question).map_err(|error| {
                let detail = format!(
                    "{} gave an answer that cannot be read ({}); is baseURL the address of a GitHub?",
                    self.place(),
                    one_line(&error.to_string())
                );
                failed(ErrorType::Transient, "ForgeError", detail)
            })
        });
        Ok(found.collect())
    }
}
