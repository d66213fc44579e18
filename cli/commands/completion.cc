// fusionctl completion bash|zsh|fish
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/command.h"

namespace fusionllm::cli {
namespace {

// A command's path ("checkpoint ls"; empty: fusionctl itself) with what may follow it.
struct Choices {
  std::string description;
  std::vector<std::string> words;
};

void Collect(const CLI::App& app, const std::string& path, std::map<std::string, Choices>& all) {
  Choices& choices = all[path];
  choices.description = app.get_description();
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    choices.words.push_back(sub->get_name());
    Collect(*sub, path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name()), all);
  }
  for (const CLI::Option* option : app.get_options(nullptr)) {
    for (const std::string& name : option->get_lnames()) choices.words.push_back("--" + name);
  }
}

// Both shells run the same function: zsh through its emulation of bash's completion.
std::string BashScript(const std::map<std::string, Choices>& all) {
  std::string cases;
  for (const auto& [path, choices] : all) absl::StrAppend(&cases, "    '", path, "') words='", absl::StrJoin(choices.words, " "), "' ;;\n");
  std::string known;
  for (const auto& [path, choices] : all) absl::StrAppend(&known, path.empty() ? "" : absl::StrCat("|", path));
  return absl::StrCat(
      "_fusionctl() {\n"
      "  local path='' word words='' current=\"${COMP_WORDS[COMP_CWORD]}\" i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=\"${path:+$path }${COMP_WORDS[i]}\"\n"
      "    case \"",
      known, "|\" in *\"|$word|\"*) path=\"$word\" ;; esac\n",
      "  done\n"
      "  case \"$path\" in\n",
      cases,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}\n"
      "complete -o default -F _fusionctl fusionctl\n");
}

std::string FishScript(const std::map<std::string, Choices>& all) {
  std::string script = "complete -c fusionctl -n __fish_use_subcommand -l help -d 'Print help'\n";
  for (const auto& [path, choices] : all) {
    if (path.empty()) continue;
    const size_t space = path.rfind(' ');
    const std::string name = space == std::string::npos ? path : path.substr(space + 1);
    const std::string when =
        space == std::string::npos ? "__fish_use_subcommand" : absl::StrCat("__fish_seen_subcommand_from ", path.substr(0, space));
    const std::string text = absl::StrReplaceAll(choices.description, {{"\\", "\\\\"}, {"'", "\\'"}});
    absl::StrAppend(&script, "complete -c fusionctl -n '", when, "' -a ", name, " -d '", text, "'\n");
    for (const std::string& word : choices.words) {
      if (!absl::StartsWith(word, "--")) continue;
      absl::StrAppend(&script, "complete -c fusionctl -n '__fish_seen_subcommand_from ", name, "' -l ", word.substr(2), "\n");
    }
  }
  return script;
}

}  // namespace

void AddCompletion(CLI::App& app, const Globals&, Action& action) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* const command = app.add_subcommand("completion", "Print a script that completes fusionctl's words in a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer("Example:\n  source <(fusionctl completion bash)");
  command->callback([shell, &app, &action] {
    action = [shell, &app] {
      std::map<std::string, Choices> all;
      Collect(app, "", all);
      if (*shell == "zsh") absl::PrintF("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n");
      absl::PrintF("%s", *shell == "fish" ? FishScript(all) : BashScript(all));
      return kExitDone;
    };
  });
}

}  // namespace fusionllm::cli
