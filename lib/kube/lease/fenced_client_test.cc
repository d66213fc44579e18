#include "lib/kube/lease/fenced_client.h"

#include <gtest/gtest.h>

#include "lib/kube/testing/unimplemented_client.h"

namespace fusionllm::kube {
namespace {

const Resource kMaps{"", "v1", "configmaps", "ConfigMap", true};
const ObjectKey kKey{"default", "map"};

TEST(FencedClient, WritesNothingWhenItMayNot) {
  testing::UnimplementedClient server;  // answers Unimplemented, whatever reaches it
  absl::Status may = absl::FailedPreconditionError("does not lead");
  FencedClient client(server, [&] { return may; });
  const auto writes = [&] {
    return std::vector<absl::Status>{
        client.Create(kMaps, "default", "{}", {}, {}).status(),
        client.Update(kMaps, kKey, "{}", {}, {}).status(),
        client.Apply(kMaps, kKey, "{}", {}, {}).status(),
        client.Patch(kMaps, kKey, PatchType::kMerge, "{}", {}, {}).status(),
        client.Delete(kMaps, kKey, {}, {}).status(),
    };
  };
  for (const absl::Status& status : writes()) EXPECT_EQ(status, may);
  EXPECT_TRUE(absl::IsUnimplemented(client.Get(kMaps, kKey, {}).status())) << "reading is always allowed";
  EXPECT_TRUE(absl::IsUnimplemented(client.List(kMaps, "", {}, {}).status()));
  may = absl::OkStatus();
  for (const absl::Status& status : writes()) EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
}

}  // namespace
}  // namespace fusionllm::kube
