// Holds a HelmRelease, as JSON on standard input, to the schema of Flux. Prints what is wrong with it.
import { readFileSync } from "node:fs";

const { HelmRelease } = await import(process.argv[2]);
try {
  new HelmRelease(JSON.parse(readFileSync(0, "utf8"))).validate();
} catch (error) {
  console.log(error.message);
  process.exit(1);
}
