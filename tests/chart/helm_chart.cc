#include "tests/chart/helm_chart.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsProgram(const std::string& path) { return access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path); }

}  // namespace

std::string SourceFolder() { return Variable("FUSIONLLM_SOURCE_DIR"); }
std::string ChartFolder() { return SourceFolder() + "/helm/fusionllm"; }

std::string FindHelm() {
  if (const std::string given = Variable("FUSIONLLM_HELM"); !given.empty()) return given;
  const std::string path = Variable("PATH");
  for (const absl::string_view folder : absl::StrSplit(path, ':', absl::SkipEmpty())) {
    if (const std::string helm = absl::StrCat(folder, "/helm"); IsProgram(helm)) return helm;
  }
  std::string cache = Variable("FUSIONLLM_CACHE");
  if (cache.empty()) {
    const std::string base = Variable("XDG_CACHE_HOME");
    cache = (base.empty() ? Variable("HOME") + "/.cache" : base) + "/fusionllm";
  }
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(cache + "/controlplane", none)) {
    if (const std::string helm = entry.path().string() + "/helm"; IsProgram(helm)) return helm;
  }
  return "";
}

bool HelmIsRequired() { return !Variable("FUSIONLLM_REQUIRE_HELM").empty(); }

Outcome Helm(const std::string& arguments) {
  Outcome outcome;
  const std::string command = absl::StrCat("'", FindHelm(), "' ", arguments, " 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t count = 0; (count = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.text.append(buffer, count);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string WithNamespaces(const std::string& options) {
  for (const char* said : {"jobNamespaces", "watchNamespaces", "allNamespaces", "/ci/"}) {
    if (absl::StrContains(options, said)) return options;
  }
  return absl::StrCat("--set rbac.allNamespaces=true ", options);
}

Outcome Render(const std::string& options) {
  return Helm(absl::StrCat("template fusion '", ChartFolder(), "' --namespace system --kube-version 1.34 ", WithNamespaces(options)));
}

std::vector<YAML::Node> ObjectsOf(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  std::vector<YAML::Node> objects;
  for (const YAML::Node& object : YAML::LoadAll(outcome.text)) {
    if (object.IsMap()) objects.push_back(object);
  }
  return objects;
}

std::vector<YAML::Node> Objects(const std::string& options) { return ObjectsOf(Render(options)); }

std::vector<YAML::Node> OfKind(const std::vector<YAML::Node>& objects, const std::string& kind) {
  std::vector<YAML::Node> found;
  for (const YAML::Node& object : objects) {
    if (object["kind"].as<std::string>() == kind) found.push_back(object);
  }
  return found;
}

std::vector<std::string> Kinds(const std::vector<YAML::Node>& objects) {
  std::vector<std::string> kinds;
  for (const YAML::Node& object : objects) kinds.push_back(object["kind"].as<std::string>());
  return kinds;
}

std::string NameOf(const YAML::Node& object) { return object["metadata"]["name"].as<std::string>(); }

YAML::Node Named(const std::vector<YAML::Node>& objects, const std::string& kind, const std::string& name) {
  for (const YAML::Node& object : OfKind(objects, kind)) {
    if (NameOf(object) == name) return object;
  }
  ADD_FAILURE() << "there is no " << kind << " " << name;
  return YAML::Node();
}

std::set<std::string> Rights(const YAML::Node& role) {
  std::set<std::string> rights;
  for (const YAML::Node& rule : role["rules"]) {
    for (const YAML::Node& resource : rule["resources"]) {
      for (const YAML::Node& verb : rule["verbs"]) rights.insert(absl::StrCat(verb.as<std::string>(), " ", resource.as<std::string>()));
    }
  }
  return rights;
}

std::map<std::string, std::set<std::string>> RightsByRole(const std::vector<YAML::Node>& objects) {
  std::map<std::string, std::set<std::string>> rights;
  for (const char* kind : {"ClusterRole", "Role"}) {
    for (const YAML::Node& role : OfKind(objects, kind)) rights[NameOf(role)] = Rights(role);
  }
  return rights;
}

// helm shows notes only where it installs, and asks a cluster then: here they are a template of a copy of the chart.
std::string Notes(const std::string& options) {
  const base::TempFolder folder;
  std::filesystem::copy(ChartFolder(), folder / "chart", std::filesystem::copy_options::recursive);
  const std::string notes = base::ReadWholeFile(folder / "chart/templates/NOTES.txt");
  folder.Write("chart/templates/_notes.tpl", absl::StrCat("{{- define \"notes\" -}}\n", notes, "\n{{- end -}}\n"));
  folder.Write("chart/templates/notes.yaml", "kind: Notes\nmetadata: {name: notes}\ntext: {{ include \"notes\" . | toJson }}\n");
  const Outcome outcome =
      Helm(absl::StrCat("template fusion '", folder / "chart", "' --namespace system --kube-version 1.34 ", WithNamespaces(options)));
  return Named(ObjectsOf(outcome), "Notes", "notes")["text"].as<std::string>("");
}

std::vector<std::string> Arguments(const std::string& options) {
  const YAML::Node container = OfKind(Objects(options), "Deployment").at(0)["spec"]["template"]["spec"]["containers"][0];
  std::vector<std::string> arguments = {container["image"].as<std::string>()};
  for (const YAML::Node& argument : container["args"]) arguments.push_back(argument.as<std::string>());
  return arguments;
}

std::vector<std::string> FileNames(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

}  // namespace fusionllm
