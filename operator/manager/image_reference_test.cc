#include "operator/manager/image_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op::manager {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ImageReferenceTest, AcceptsOnlyImageReferences) {
  const std::string digest(64, 'a');
  for (const std::string& image :
       {std::string("busybox"), std::string("fusionllm/broker:latest"), std::string("registry.example.org/ml/a-b_c__d.e--f:v1.2-rc_3"),
        std::string("registry:5000/broker"), std::string("localhost/broker"), std::string("r:5000/broker:T"),
        std::string("[fd00::1]:5000/broker:v1"), std::string("10.0.0.1/x"), std::string("UPPER/x:1"), absl::StrCat("a/b@sha256:", digest),
        absl::StrCat("a.example/b:v1@sha256:", digest)}) {
    EXPECT_THAT(CheckImage(image), IsEmpty()) << image;
  }
  for (const std::string& other : {std::string(),
                                   std::string(" a"),
                                   std::string("a b"),
                                   std::string("a\n"),
                                   std::string("Broker"),
                                   std::string("a/Broker"),
                                   std::string("a:"),
                                   std::string("a:b:c"),
                                   std::string("a:-b"),
                                   absl::StrCat("a:", std::string(129, 'b')),
                                   std::string("a//b"),
                                   std::string("/a"),
                                   std::string("a/"),
                                   std::string("https://a/b"),
                                   std::string("-a"),
                                   std::string("a-"),
                                   std::string("a..b"),
                                   std::string("a___b"),
                                   std::string("a@sha256:abc"),
                                   std::string("a@"),
                                   absl::StrCat("a@sha256:", std::string(64, 'g')),
                                   std::string(256, 'a'),
                                   std::string("$(IMAGE)"),
                                   std::string("registry:port/a"),
                                   std::string("[x]/a"),
                                   std::string("a.b:/c")}) {
    EXPECT_THAT(CheckImage(other), HasSubstr("must be an image such as")) << other;
  }
}

}  // namespace
}  // namespace fusionllm::op::manager
