// What lies beside the chart's templates: its description, its README, and the values that it is tried with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "tests/chart/helm_chart.h"

namespace fusionllm {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

std::vector<std::string> TriedValues() {
  std::vector<std::string> files;
  for (const std::string& name : FileNames(ChartFolder() + "/ci")) files.push_back(absl::StrCat(ChartFolder(), "/ci/", name));
  return files;
}

// Of all scalars below `node`, by path.
void ForEachScalar(const YAML::Node& node, const std::string& path,
                   const std::function<void(const std::string&, const std::string&)>& use) {
  if (node.IsScalar()) use(path, node.Scalar());
  if (!node.IsMap()) return;
  for (const auto& entry : node) {
    ForEachScalar(entry.second, path.empty() ? entry.first.as<std::string>() : absl::StrCat(path, ".", entry.first.as<std::string>()), use);
  }
}

TEST(ChartFilesTest, DefinitionsAreThoseOfTheRepository) {
  const std::string ours = SourceFolder() + "/crds/";
  for (const char* chart : {"fusionllm", "fusion-crds"}) {
    const std::string copies = absl::StrCat(SourceFolder(), "/helm/", chart, "/files/crds/");
    EXPECT_THAT(FileNames(copies), UnorderedElementsAreArray(FileNames(ours)));
    for (const std::string& name : FileNames(ours)) {
      EXPECT_EQ(base::ReadWholeFile(ours + name), base::ReadWholeFile(copies + name))
          << chart << ", " << name << ": run tools/check-generated.sh --write and commit the result";
    }
  }
}

TEST(ChartFilesTest, ReadmesAreThoseOfTheValues) {
  const base::TempFolder folder;
  const std::string command = absl::StrCat("'", SourceFolder(), "/tools/generate/chart-readme.sh' '", folder.path(), "'");
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const char* chart : {"fusionllm", "fusion-crds"}) {
    const std::string name = absl::StrCat("/helm/", chart, "/README.md");
    EXPECT_EQ(base::ReadWholeFile(SourceFolder() + name), base::ReadWholeFile(folder.path() + name))
        << "run tools/check-generated.sh --write and commit the result";
  }
}

TEST(ChartFilesTest, TheReadmeHasEveryValue) {
  const std::string readme = base::ReadWholeFile(ChartFolder() + "/README.md");
  ForEachScalar(YAML::LoadFile(ChartFolder() + "/values.yaml"), "", [&](std::string path, const std::string&) {
    // A mapping that is written in one line is one value.
    while (!absl::StrContains(readme, absl::StrCat("| `", path, "` |")) && absl::StrContains(path, '.')) {
      path.resize(path.rfind('.'));
      ASSERT_THAT(path, ::testing::AnyOf(::testing::EndsWith("Probe"), ::testing::EndsWith("requests"), ::testing::EndsWith("limits")))
          << path;
    }
  });
}

TEST(ChartFilesTest, EverySwitchIsTried) {
  std::map<std::string, std::set<std::string>> tried;
  for (const std::string& file : TriedValues()) {
    ForEachScalar(YAML::LoadFile(file), "", [&](const std::string& path, const std::string& value) { tried[path].insert(value); });
  }
  ForEachScalar(YAML::LoadFile(ChartFolder() + "/values.yaml"), "", [&](const std::string& path, const std::string& value) {
    if (value != "true" && value != "false") return;
    EXPECT_THAT(tried[path], Contains(value == "true" ? "false" : "true")) << path << " stays " << value << " in all of ci/";
  });
}

TEST_F(ChartTest, WhatTheChartIsTriedWithIsGood) {
  ASSERT_THAT(TriedValues(), ::testing::Not(IsEmpty()));
  for (const std::string& file : TriedValues()) {
    const std::string options = absl::StrCat("--values '", file, "'");
    const Outcome lint = Helm(absl::StrCat("lint --strict '", ChartFolder(), "' --kube-version 1.34 ", options));
    EXPECT_EQ(lint.code, 0) << file << "\n" << lint.text;
    std::set<std::string> names;
    for (const YAML::Node& object : Objects(options + " --api-versions monitoring.coreos.com/v1")) {
      const YAML::Node metadata = object["metadata"];
      const std::string name = absl::StrCat(object["kind"].as<std::string>(), " ",
                                            metadata["namespace"] ? metadata["namespace"].as<std::string>() : "", "/", NameOf(object));
      EXPECT_TRUE(names.insert(name).second) << file << " gives two of " << name;
      for (const char* label : {"name", "instance", "component", "version", "part-of", "managed-by"}) {
        EXPECT_TRUE(metadata["labels"][absl::StrCat("app.kubernetes.io/", label)].IsDefined()) << name << " has no " << label;
      }
    }
    EXPECT_THAT(names, ::testing::Not(IsEmpty()));
  }
}

// What artifacthub.io shows.
TEST_F(ChartTest, TheDescriptionNamesImagesAndKindsAsTheyAre) {
  const YAML::Node notes = YAML::LoadFile(ChartFolder() + "/Chart.yaml")["annotations"];
  std::vector<std::string> images;
  for (const YAML::Node& image : YAML::Load(notes["artifacthub.io/images"].as<std::string>()))
    images.push_back(image["image"].as<std::string>());
  std::vector<std::string> rendered;
  for (const std::string& argument : Arguments("")) {
    const size_t at = argument.find("localhost/");
    if (at != std::string::npos) rendered.push_back(argument.substr(at));
  }
  EXPECT_THAT(images, UnorderedElementsAreArray(rendered));
  std::vector<std::string> kinds, defined;
  for (const YAML::Node& kind : YAML::Load(notes["artifacthub.io/crds"].as<std::string>())) {
    kinds.push_back(
        absl::StrCat(kind["name"].as<std::string>(), " ", kind["kind"].as<std::string>(), " ", kind["version"].as<std::string>()));
  }
  for (const YAML::Node& crd : OfKind(Objects(""), "CustomResourceDefinition")) {
    defined.push_back(absl::StrCat(NameOf(crd), " ", crd["spec"]["names"]["kind"].as<std::string>(), " ",
                                   crd["spec"]["versions"][0]["name"].as<std::string>()));
  }
  EXPECT_THAT(kinds, UnorderedElementsAreArray(defined));
}

}  // namespace
}  // namespace fusionllm
