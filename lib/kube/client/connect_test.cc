#include "lib/kube/client/connect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"(
clusters: [{name: a, cluster: {server: "https://10.0.0.1:6443"}}, {name: b, cluster: {server: "https://10.0.0.2:6443"}}]
users: [{name: u, user: {token: abc}}, {name: thief, user: {tokenFile: /etc/token}}]
contexts:
- {name: a, context: {cluster: a, user: u, namespace: team}}
- {name: b, context: {cluster: b, user: u}}
- {name: thief, context: {cluster: a, user: thief}}
current-context: a
)";

TEST(Connect, ByTheContextOfAKubeconfig) {
  const base::TempFolder folder;
  const std::string path = folder.path() + "/config";
  std::ofstream(path) << kConfig;
  testing::FakeClock clock;
  const auto current = Connect({.kubeconfig = path}, clock);
  ASSERT_TRUE(current.ok()) << current.status();
  EXPECT_EQ((*current)->server(), "10.0.0.1:6443");
  EXPECT_EQ((*current)->default_namespace(), "team");
  EXPECT_EQ((*Connect({.kubeconfig = path, .context = "b"}, clock))->server(), "10.0.0.2:6443");
  EXPECT_TRUE(absl::IsNotFound(Connect({.kubeconfig = path + ".missing"}, clock).status()));
}

TEST(Connect, AForeignKubeconfigMayNotReadOurFiles) {
  testing::FakeClock clock;
  EXPECT_TRUE(ConnectForeign(kConfig, {}, clock).ok());
  const absl::Status thief = ConnectForeign(kConfig, {.context = "thief"}, clock).status();
  EXPECT_EQ(thief.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(thief.message()), HasSubstr("TokenFileNotAllowed: "));
}

}  // namespace
}  // namespace fusionllm::kube
