// Starts `hlo-lint server` for open HLO and lets the editor talk to it.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate() {
  const [command, ...args] = vscode.workspace.getConfiguration("hlo").get("server.command");
  client = new LanguageClient(
    "hlo-lint",
    "hlo-lint",
    { command, args },
    {
      documentSelector: [{ language: "hlo" }],
      synchronize: {
        fileEvents: vscode.workspace.createFileSystemWatcher("**/{hlo_lint,pyproject}.toml"),
      },
    },
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `${command} did not start (${error.message}): pip install 'hlo-lint[lsp]', ` +
        "or say in hlo.server.command where it is. Highlighting works without it.",
    );
  }
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
