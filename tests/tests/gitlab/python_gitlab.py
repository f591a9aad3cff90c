"""A round of branch, commit, merge request and merge with python-gitlab, a client that is not ours.

Usage: python_gitlab.py URL TOKEN PROJECT

What differs from what GitLab would say ends it with an error. The last step is a negative control: a second merge
request for the same branch must be refused as GitLab refuses it, or this round would prove nothing.
"""

import base64
import sys

import gitlab
from gitlab.exceptions import GitlabCreateError, GitlabGetError, GitlabMRClosedError

URL, TOKEN, PROJECT = sys.argv[1:]
BRANCH = "team/it's-#1"


def main() -> None:
    server = gitlab.Gitlab(URL, private_token=TOKEN)
    server.auth()
    assert server.personal_access_tokens.get("self").active
    project = server.projects.get(PROJECT)
    assert project.default_branch == "main"

    branch = project.branches.create({"branch": BRANCH, "ref": "main"})
    assert branch.commit["id"] == project.branches.get("main").commit["id"]
    commit = project.commits.create(
        {
            "branch": BRANCH,
            "commit_message": "Change three files",
            "actions": [
                {"action": "create", "file_path": "new/a b.bin", "encoding": "base64",
                 "content": base64.b64encode(bytes(range(256))).decode()},
                {"action": "update", "file_path": "clusters/prod-eu/bindings.yaml", "content": "bindings: []\n"},
                {"action": "delete", "file_path": "clusters/prod-eu/obsolete.yaml"},
            ],
        }
    )
    assert commit.stats["total"] > 0, commit.stats
    assert len(commit.diff(get_all=True)) == 3
    assert project.files.get("new/a b.bin", ref=BRANCH).decode() == bytes(range(256))
    tree = project.repository_tree("clusters/prod-eu", ref=BRANCH, get_all=True)
    assert [entry["name"] for entry in tree] == ["bindings.yaml", "kustomization.yaml"], tree
    compared = project.repository_compare("main", BRANCH)
    assert len(compared["commits"]) == 1 and len(compared["diffs"]) == 3

    wanted = {"source_branch": BRANCH, "target_branch": "main", "title": "By hand", "labels": ["nabu"]}
    request = project.mergerequests.create(wanted)
    assert (request.state, request.sha, request.labels) == ("opened", commit.id, ["nabu"])
    request.notes.create({"body": "Looks good"})
    assert [note.body for note in request.notes.list(get_all=True)] == ["Looks good"]
    found = project.mergerequests.list(source_branch=BRANCH, state="all", get_all=True)
    assert [one.iid for one in found] == [request.iid]

    refuse_another(project, wanted, request.iid)

    request.merge(should_remove_source_branch=True)
    assert project.mergerequests.get(request.iid).state == "merged"
    assert project.files.get("clusters/prod-eu/bindings.yaml", ref="main").decode() == b"bindings: []\n"
    for gone in (lambda: project.branches.get(BRANCH), lambda: project.files.get("clusters/prod-eu/obsolete.yaml", "main")):
        try:
            gone()
        except GitlabGetError as error:
            assert error.response_code == 404, error
        else:
            raise AssertionError("it is still there")
    try:
        request.merge()
    except GitlabMRClosedError as error:
        assert error.response_code == 405, error
    else:
        raise AssertionError("it was merged twice")
    read_pages(project)
    print("done")


def refuse_another(project, wanted, iid) -> None:
    try:
        project.mergerequests.create(wanted)
    except GitlabCreateError as error:
        assert error.response_code == 409, error
        assert f"Another open merge request already exists for this source branch: !{iid}" in str(error), error
    else:
        raise AssertionError("the negative control went through")


def read_pages(project) -> None:
    """Lists come in pages of 20, with GitLab's headers."""
    for number in range(45):
        project.branches.create({"branch": f"many/{number}", "ref": "main"})
    first = project.branches.list(iterator=True)
    assert (first.total, first.per_page, first.total_pages) == (46, 20, 3), (first.total, first.per_page)
    assert len(list(first)) == 46


main()
