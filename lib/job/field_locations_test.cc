#include "lib/job/field_locations.h"

#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

class FieldLocationsTest : public ::testing::Test {
 protected:
  FieldLocations PlacesOf(const std::vector<std::string>& overrides) {
    std::ofstream(folder_ / "job.yaml") << "apiVersion: fusionllm.io/v1alpha1\n"
                                           "kind: FusionJob\n"
                                           "metadata: {name: t}\n"
                                           "spec:\n"
                                           "  model: {family: gpt2, preset: tiny}\n"
                                           "  data:\n"
                                           "    kind: text\n"
                                           "    path: [a]\n"
                                           "  strategy: {pins: [{ops: a, device: d},\n"
                                           "                    {ops: b, device: d}]}\n";
    FieldLocations places;
    const absl::StatusOr<FusionJob> job = LoadFusionJob(folder_ / "job.yaml", overrides, &places);
    EXPECT_TRUE(job.ok()) << job.status();
    return places;
  }
  std::string At(int line) const { return folder_ / ("job.yaml:" + std::to_string(line) + ": "); }

  const base::TempFolder folder_;
};

TEST_F(FieldLocationsTest, AFieldOfTheFileHasFileAndLine) {
  const FieldLocations places = PlacesOf({});
  EXPECT_EQ(places.Located("spec.data.path: gone"), At(8) + "spec.data.path: gone");
  EXPECT_EQ(places.Located("spec.strategy.pins[1].device: who?"), At(10) + "spec.strategy.pins[1].device: who?");
  EXPECT_EQ(places.Located("spec.data.kind is text, and no"), At(7) + "spec.data.kind is text, and no");
  EXPECT_EQ(places.Located(absl::NotFoundError("metadata.name: no")), absl::NotFoundError(At(3) + "metadata.name: no"));
}

TEST_F(FieldLocationsTest, AFieldThatIsLeftOutHasThePlaceOfItsMapping) {
  EXPECT_EQ(PlacesOf({}).Located("spec.model.init.from: none"), At(5) + "spec.model.init.from: none");
}

TEST_F(FieldLocationsTest, AnOverrideIsNamedAsSuch) {
  const FieldLocations places = PlacesOf({"spec.data.path=nowhere", "spec.model.init={from: hf}"});
  EXPECT_EQ(places.Located("spec.data.path: gone"), "--set spec.data.path: gone");
  EXPECT_EQ(places.Located("spec.model.init.from: gone"), "--set spec.model.init: spec.model.init.from: gone");
  EXPECT_EQ(places.Located("spec.data.kind: text"), At(7) + "spec.data.kind: text");
}

TEST_F(FieldLocationsTest, OtherLinesStayAsTheyAre) {
  const FieldLocations places = PlacesOf({});
  for (const char* line : {"model.dag:3:1: no", "no such file", "special: spec.data", "specs.data: x", "spec.a{b}: x", ""}) {
    EXPECT_EQ(places.Located(line), line);
  }
  EXPECT_EQ(places.Located("first\nspec.data: second"), "first\n" + At(6) + "spec.data: second");
  EXPECT_TRUE(places.Located(absl::OkStatus()).ok());
  EXPECT_EQ(FieldLocations().Located("spec.data: x"), "spec.data: x") << "of no document";
}

TEST_F(FieldLocationsTest, LinesOfAnInlineGraphAreSaidBehindThePlace) {
  EXPECT_EQ(PlacesOf({}).Located("spec.model.graph.inline:3:1: no"), At(5) + "spec.model.graph.inline:3:1: no");
}

}  // namespace
}  // namespace fusionllm::job
