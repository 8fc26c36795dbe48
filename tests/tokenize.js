// Prints what the engine of VS Code makes of a file with a TextMate grammar: a JSON array for each
// line, of [text, scopes] for each token. Usage: node tokenize.js MODULES GRAMMAR FILE
const fs = require("fs");
const path = require("path");
const [modules, grammar, file] = process.argv.slice(2);
const load = (name) => require(path.join(modules, "node_modules", name));
const oniguruma = load("vscode-oniguruma");
const textmate = load("vscode-textmate");

async function main() {
  const wasm = path.join(modules, "node_modules/vscode-oniguruma/release/onig.wasm");
  await oniguruma.loadWASM(fs.readFileSync(wasm).buffer);
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(grammar, "utf8"), grammar),
  });
  const loaded = await registry.loadGrammar("source.hlo");
  let stack = textmate.INITIAL;
  const lines = fs.readFileSync(file, "utf8").split("\n");
  for (const line of lines) {
    const result = loaded.tokenizeLine(line, stack);
    stack = result.ruleStack;
    const tokens = result.tokens.map((each) => [
      line.slice(each.startIndex, each.endIndex),
      each.scopes,
    ]);
    process.stdout.write(JSON.stringify(tokens) + "\n");
  }
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
