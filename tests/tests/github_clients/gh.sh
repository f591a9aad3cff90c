#!/usr/bin/env bash
# A round of branch, commit, pull request, review and merge with GitHub's own command line. Says what went wrong and fails.
set -euo pipefail

export GH_HOST=github.localhost GH_TOKEN=$BOT_TOKEN GH_NO_UPDATE_NOTIFIER=1 GH_PROMPT_DISABLED=1
export GH_REPO=github.localhost/ninsun-labs/gitops NO_COLOR=1
repository=repos/ninsun-labs/gitops

fail() {
  echo "gh.sh: $1" >&2
  exit 1
}

expect() { # what, wanted, found
  [[ "$3" == "$2" ]] || fail "$1 is '$3' and should be '$2'"
}

main=$(gh api "$repository/git/ref/heads/main" --jq .object.sha)
gh api "$repository/git/refs" -f ref=refs/heads/gh -f sha="$main" --silent
# shellcheck disable=SC2016 # the document's own variables
document='mutation($head: GitObjectID!, $contents: Base64String!) {
  createCommitOnBranch(input: {
    branch: {repositoryNameWithOwner: "ninsun-labs/gitops", branchName: "gh"}, expectedHeadOid: $head
    message: {headline: "Add a file"}, fileChanges: {additions: [{path: "gh.txt", contents: $contents}]}
  }) { commit { oid } }
}'
commit=$(gh api graphql -f query="$document" -f head="$main" -f contents="$(printf 'content\n' | base64)" \
  --jq .data.createCommitOnBranch.commit.oid)

gh label create nabu
url=$(gh pr create --repo "$GH_REPO" --head gh --base main --title "Add a file" --body "Text" --label nabu)
expect "the number at the end of the address" 1 "${url##*/}"
gh pr edit 1 --title "Add a file, once" >/dev/null
expect "the list" "1 gh" "$(gh pr list --json number,headRefName --jq '.[] | "\(.number) \(.headRefName)"')"
gh pr comment 1 --body "Seen." >/dev/null
GH_TOKEN=$PERSON_TOKEN gh pr review 1 --approve --body "Good."
expect "the head" "$commit" "$(gh pr view 1 --json headRefOid --jq .headRefOid)"
gh pr merge 1 --merge --delete-branch
expect "the state" MERGED "$(gh pr view 1 --json state --jq .state)"
expect "the file" content "$(gh api "$repository/contents/gh.txt" --jq .content | base64 -d)"

# What must fail, so that success means something.
if gh api "$repository/git/refs" -f ref=refs/heads/main -f sha="$main" --silent 2>/dev/null; then
  fail "the same ref twice"
fi
if GH_TOKEN=nobody gh api user --silent 2>/dev/null; then
  fail "anybody may come in"
fi
