// A round of branch, commit, pull request, review and merge with GitHub's own client, then with an App's.
// Says what went wrong and fails, or says nothing.
import assert from "node:assert/strict";

const { App, Octokit } = await import(process.env.OCTOKIT);
const baseUrl = `${process.env.FORGE_URL}/api/v3`;
// It waits a second before each write by itself, and tries again what fails: neither is looked at here.
const Quick = Octokit.defaults({ baseUrl, throttle: { enabled: false }, retry: { enabled: false } });
const bot = new Quick({ auth: process.env.BOT_TOKEN });
const person = new Quick({ auth: process.env.PERSON_TOKEN });
const where = { owner: "ninsun-labs", repo: "gitops" };

async function round(octokit, branch) {
  const { data: main } = await octokit.rest.git.getRef({ ...where, ref: "heads/main" });
  const { data: tree } = await octokit.rest.git.createTree({
    ...where,
    base_tree: main.object.sha,
    tree: [{ path: `${branch}.sh`, mode: "100755", type: "blob", content: "#!/bin/sh\n" }],
  });
  const { data: commit } = await octokit.rest.git.createCommit({
    ...where, message: `Add ${branch}`, tree: tree.sha, parents: [main.object.sha],
  });
  await octokit.rest.git.createRef({ ...where, ref: `refs/heads/${branch}`, sha: commit.sha });
  const { data: pull } = await octokit.rest.pulls.create({ ...where, head: branch, base: "main", title: branch, body: "Text" });
  await octokit.rest.issues.addLabels({ ...where, issue_number: pull.number, labels: ["security"] });
  const { data: review } = await person.rest.pulls.createReview({ ...where, pull_number: pull.number, event: "APPROVE" });
  assert.equal(review.state, "APPROVED");
  const found = await octokit.graphql(
    `query($owner: String!, $repo: String!, $branch: String!) {
      repository(owner: $owner, name: $repo) {
        pullRequests(headRefName: $branch, first: 5) { nodes { number headRefOid state } }
      }
    }`,
    { ...where, branch },
  );
  assert.deepEqual(found.repository.pullRequests.nodes, [{ number: pull.number, headRefOid: commit.sha, state: "OPEN" }]);
  const { data: merged } = await octokit.rest.pulls.merge({ ...where, pull_number: pull.number });
  assert.equal(merged.merged, true);
  const all = await octokit.paginate(octokit.rest.pulls.list, { ...where, state: "closed", per_page: 100 });
  assert.ok(all.some((one) => one.number === pull.number && one.merged_at));
}

await round(bot, "octokit");
const app = new App({
  appId: process.env.APP_ID,
  privateKey: process.env.APP_KEY,
  Octokit: Quick,
});
await round(await app.getInstallationOctokit(Number(process.env.INSTALLATION_ID)), "app");

// What must fail, so that success means something.
const { data: main } = await bot.rest.git.getRef({ ...where, ref: "heads/main" });
await assert.rejects(
  bot.rest.git.createRef({ ...where, ref: "refs/heads/octokit", sha: main.object.sha }),
  (error) => error.status === 422 && error.message.startsWith("Reference already exists"),
);
await assert.rejects(bot.graphql("{ viewer { nothing } }"), /nothing/);
