"""A round of branch, commit, pull request, review and merge with PyGithub. Says what went wrong and fails."""

import os

import github
from github import Auth, Github, GithubException

base_url = os.environ["FORGE_URL"] + "/api/v3"


def client(token):
    return Github(base_url=base_url, auth=Auth.Token(os.environ[token]), retry=None)


repository = client("BOT_TOKEN").get_repo("ninsun-labs/gitops")
main = repository.get_branch("main").commit.sha
repository.create_git_ref("refs/heads/pygithub", main)
made = repository.create_file("pygithub.txt", "Add a file", "content\n", branch="pygithub")
pull = repository.create_pull(base="main", head="pygithub", title="PyGithub", body="Text")
assert pull.head.sha == made["commit"].sha, pull.head.sha
pull.add_to_labels("security")
pull.create_issue_comment("Seen.")
theirs = client("PERSON_TOKEN").get_repo("ninsun-labs/gitops").get_pull(pull.number)
assert theirs.create_review(event="APPROVE").state == "APPROVED"
assert pull.merge().merged
assert repository.get_pull(pull.number).is_merged()
assert repository.get_contents("pygithub.txt").decoded_content == b"content\n"

# What must fail, so that success means something.
try:
    repository.create_git_ref("refs/heads/pygithub", main)
except GithubException as error:
    assert error.status == 422, error
else:
    raise AssertionError("the same ref twice")
try:
    Github(base_url=base_url, auth=Auth.Token("nobody"), retry=None).get_user().login
except github.BadCredentialsException:
    pass
else:
    raise AssertionError("anybody may come in")
