// The helm chart as helm renders it for some values. Needs helm, in FUSIONLLM_HELM, in the PATH or where e2e/controlplane/build.sh puts it;
// without, the tests that need it are skipped, and fail with FUSIONLLM_REQUIRE_HELM, which .ci/run sets.
#pragma once

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace fusionllm {

std::string SourceFolder();
std::string ChartFolder();

// Path of helm; empty: there is none.
std::string FindHelm();
// Whether this run may not do without.
bool HelmIsRequired();
inline constexpr char kNoHelm[] = "no helm: set FUSIONLLM_HELM, or run e2e/controlplane/build.sh helm";

struct Outcome {
  int code = -1;
  std::string text;  // stdout and stderr
};

// `arguments` are for a shell.
Outcome Helm(const std::string& arguments);
// `options`, and where they do not say in which namespaces jobs are, all of them.
std::string WithNamespaces(const std::string& options);
// helm template with these, for Kubernetes 1.34, into namespace "system" as release "fusion".
Outcome Render(const std::string& options);
// The objects that helm gave; fails the test if it failed.
std::vector<YAML::Node> ObjectsOf(const Outcome& outcome);
// Of Render().
std::vector<YAML::Node> Objects(const std::string& options);
std::vector<YAML::Node> OfKind(const std::vector<YAML::Node>& objects, const std::string& kind);
std::vector<std::string> Kinds(const std::vector<YAML::Node>& objects);
std::string NameOf(const YAML::Node& object);
// The one of this kind and name; fails the test, and is none, if there is none.
YAML::Node Named(const std::vector<YAML::Node>& objects, const std::string& kind, const std::string& name);

// "VERB RESOURCE" for all that a role allows.
std::set<std::string> Rights(const YAML::Node& role);
std::map<std::string, std::set<std::string>> RightsByRole(const std::vector<YAML::Node>& objects);

// What helm tells whoever installs it.
std::string Notes(const std::string& options);

// The operator's image, and its arguments.
std::vector<std::string> Arguments(const std::string& options);
std::vector<std::string> FileNames(const std::string& folder);

class ChartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FindHelm().empty()) return;
    ASSERT_FALSE(HelmIsRequired()) << kNoHelm;
    GTEST_SKIP() << kNoHelm;
  }
};

}  // namespace fusionllm
