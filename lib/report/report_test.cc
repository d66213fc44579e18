#include "lib/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/report/chart.h"
#include "lib/report/html.h"
#include "lib/report/plan_view.h"
#include "lib/report/timeline.h"

namespace fusionllm::report {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kDevices = 6;

std::string Device(int i) { return absl::StrCat(i < 3 ? "paris-" : "tokyo-", i % 3); }

Span SpanOf(int device, Span::Kind kind, int micro_batch, int64_t begin_ms, int64_t end_ms) {
  return {Device(device), 40, kind, micro_batch, begin_ms * 1'000'000, end_ms * 1'000'000};
}

// Of eight micro-batches, without a word of their size.
plan::Plan PlanOfSteps(double step_seconds, double lower_bound_seconds, int in_flight) {
  return {.strategy = "op-fence",
          .predicted_step_seconds = step_seconds,
          .lower_bound_seconds = lower_bound_seconds,
          .micro_batches = 8,
          .micro_batch_size = 0,
          .in_flight = in_flight};
}

plan::Replica RankOfReplica(double compute_seconds, int64_t memory_bytes) {
  return {.compute_seconds = compute_seconds, .memory_bytes = memory_bytes};
}

// A run as a demo makes it: six stages in two sites. `speed` divides its times.
Run SampleRun(const std::string& title, double speed, const std::string& codec) {
  Run run;
  run.title = title;
  run.job = "demo";
  run.outcome = "Ended after 60 steps.";
  for (int step = 1; step <= 60; ++step) {
    const double loss = 2.4 + 3.2 * std::exp(-step / 18.0) + 0.08 * std::sin(step * 1.7 + speed);
    run.steps.push_back({step, loss, 1.1, 3e-4, 1.9 / speed, 1078 * speed});
  }
  run.evaluations = {{20, 3.5, 0.2}, {60, 2.6, 0.31}};
  run.events = {{"ExecutorJoined", 0, "paris-0 joined", "paris-0"}, {"ExecutorLost", 31, "tokyo-2 does not answer", "tokyo-2"}};
  run.plan = PlanOfSteps(1.85 / speed, 1.2 / speed, 4);
  run.plans = 1;
  run.summary = Summary{60, run.steps.back().loss, 1.9 / speed, 1.85 / speed, 240'000'000, {}, {}};
  for (int i = 0; i < kDevices; ++i) {
    run.site_of[Device(i)] = i < 3 ? "paris" : "tokyo";
    run.plan->stages.push_back({.index = i,
                                .devices = {Device(i)},
                                .ops = {absl::StrCat("block.", i, ".ln"), absl::StrCat("block.", i, ".attn"), "lm_head"},
                                .compute_seconds = 0.4,
                                .memory_bytes = 300 << 20});
    run.summary->stages.push_back({i, 0, Device(i), 0.3 + 0.1 * i, 0.01, 280 << 20, 300 << 20});
    if (i == 0) continue;
    const std::string used = i == 3 ? codec : "fp32";
    for (const auto& [src, dst] : {std::pair(i - 1, i), std::pair(i, i - 1)}) {
      run.plan->links.push_back({.src = Device(src),
                                 .dst = Device(dst),
                                 .bytes = 2'097'152,
                                 .codec = used,
                                 .ratio = used == "fp32" ? 1.0 : 25.0,
                                 .seconds = 0.2});
      run.summary->links.push_back({Device(src), Device(dst), 126'000'000, used, used == "fp32" ? 1.0 : 25.0, 1.24e6});
    }
  }
  for (int device = 0; device < kDevices; ++device) {
    for (int micro_batch = 0; micro_batch < 8; ++micro_batch) {
      const int64_t at = 40 * device + 90 * micro_batch;
      run.spans.push_back(SpanOf(device, Span::Kind::kForward, micro_batch, at, at + 30));
      run.spans.push_back(SpanOf(device, Span::Kind::kBackward, micro_batch, at + 30, at + 80));
      run.spans.push_back(SpanOf(device, Span::Kind::kWait, micro_batch, at + 80, at + 90));
    }
    run.spans.push_back(SpanOf(device, Span::Kind::kUpdate, -1, 960, 980));
  }
  return run;
}

Report SampleReport() {
  return {"Demo: three ways to train over a slow link",
          "A small GPT-2 on six emulated devices in two sites, 10 Mbit/s and 40 ms apart.",
          {{"processor", "Example CPU, 2 cores"}, {"memory", "4 GiB"}},
          {SampleRun("naive", 1, "fp32"), SampleRun("op-fence, 6 stages", 3, "topk"), SampleRun("op-fence, free", 4.5, "int8")}};
}

TEST(HtmlTest, TextOfOthersCannotBecomeMarkup) {
  EXPECT_EQ(Escape("<b a=\"1\">'&'</b>"), "&lt;b a=&quot;1&quot;&gt;&#39;&amp;&#39;&lt;/b&gt;");
  EXPECT_EQ(Escape(absl::string_view("a\0b\x1b", 4)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(HtmlTest, TicksCoverTheRangeInRoundSteps) {
  EXPECT_THAT(NiceTicks(0, 10, 6), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(NiceTicks(2.31, 5.62, 6), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(TickLabel(0.25, 0.05), "0.25");
  EXPECT_EQ(TickLabel(20, 10), "20");
  for (const double size : {1e-12, 3.7e-5, 1.0, 7.3e9, 1e300}) {
    const std::vector<double> ticks = NiceTicks(size, 2 * size, 6);
    EXPECT_LE(ticks.size(), 7u) << size;
    EXPECT_GE(ticks.size(), 2u) << size;
    EXPECT_LE(ticks.front(), size);
    EXPECT_GE(ticks.back(), 2 * size * (1 - 1e-9));
  }
}

TEST(ReportTest, TilesAreOfWhatWasMeasuredOnly) {
  Report report;
  report.runs = {SampleRun("short", 1, "fp32")};
  EXPECT_THAT(ToHtml(report), AllOf(HasSubstr("a step (median), predicted 1.85 s (+2.7%)</span>"), HasSubstr("tokens a second</span>")));
  report.runs[0].summary->median_step_s = NAN;
  report.runs[0].earlier_steps = report.runs[0].steps.size();
  EXPECT_THAT(ToHtml(report), AllOf(HasSubstr("a step, predicted</span>"), Not(HasSubstr("a step (median)")),
                                    Not(HasSubstr("tokens a second</span>")), Not(HasSubstr("of training, "))));
}

TEST(HtmlTest, SecondsReadWell) {
  EXPECT_EQ(Seconds(1.924), "1.92 s");
  EXPECT_EQ(Seconds(0.085), "85 ms");
  EXPECT_EQ(Seconds(NAN), "–");
  EXPECT_EQ(Seconds(3.47e-18), "0 s");
  EXPECT_EQ(Seconds(2e-9), "0.002 µs");
}

TEST(ChartTest, DivergedLossesLeaveGaps) {
  const std::string svg = DrawChart({"c", "x", "y"}, {{"a", 0, {{1, 5}, {2, 4}, {3, NAN}, {4, 3}}, {}}});
  EXPECT_THAT(svg, HasSubstr("[[[1,5],[2,4],[4,3]]]"));
  const size_t path = svg.find(" d=\"M");
  ASSERT_NE(path, std::string::npos);
  EXPECT_NE(svg.find('M', path + 5), std::string::npos) << "the line starts anew after the gap";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_EQ(DrawChart({"c", "x", "y"}, {{"a", 0, {{1, NAN}}, {}}}), "");
  EXPECT_EQ(DrawChart({"c", "x", "y"}, {}), "");
}

TEST(ChartTest, OnePointAndEqualPointsHaveAxes) {
  for (const double y : {0.0, 5.0, -1e-9, 1e30}) {
    EXPECT_THAT(DrawChart({"c", "x", "y"}, {{"a", 0, {{1, y}, {1, y}}, {}}}), HasSubstr("class=\"axis\"")) << y;
  }
}

TEST(ChartTest, TheTitleOfAnAxisStandsClearOfLongLabels) {
  constexpr double kWidestDigit = 7.7;   // DejaVu Sans at 12 px
  constexpr double kTitleEnds = 13 + 4;  // its baseline and what hangs below it
  for (const double top : {0.001, 0.0005, 100000.0}) {
    const std::string svg = DrawChart({"c", "step", "learning rate"}, {{"a", 0, {{1, 0}, {2, top}}, {}}});
    int labels = 0;
    for (size_t at = svg.find("text-anchor=\"end\">"); at != std::string::npos; at = svg.find("text-anchor=\"end\">", at + 1), ++labels) {
      const size_t text = at + sizeof "text-anchor=\"end\">" - 1, x = svg.rfind("<text x=\"", at) + sizeof "<text x=\"" - 1;
      const double ends = std::stod(svg.substr(x)), width = kWidestDigit * static_cast<double>(svg.find('<', text) - text);
      EXPECT_GE(ends - width, kTitleEnds) << svg.substr(text, 12);
    }
    EXPECT_GE(labels, 2) << "those of the axis";
  }
}

TEST(ChartTest, LongRunsAreThinnedToMeans) {
  ChartSeries series = {"a", 0, {}, {}};
  for (int i = 1; i <= 300'000; ++i) series.points.push_back({static_cast<double>(i), i % 2 == 0 ? 1.0 : 3.0});
  const std::string svg = DrawChart({"c", "x", "y"}, {series});
  EXPECT_LT(svg.size(), 100'000u);
  EXPECT_THAT(svg, HasSubstr("[300000,2]"));
}

TEST(PlanViewTest, OpsAreNamedByTheirHeads) {
  EXPECT_EQ(SummarizeOps({"wte", "block.0.ln.1", "block.0.attn", "block.1.ln"}), "wte, block.0, block.1");
  EXPECT_EQ(SummarizeOps({"a", "b", "c", "d", "e", "f", "g", "h"}), "a, b, c, d, e, f, ...");
}

TEST(TimelineTest, ShowsTheStepThatMostDevicesTraced) {
  report::Run run = SampleRun("r", 1, "fp32");
  run.spans.push_back({"paris-0", 41, Span::Kind::kForward, 0, 0, 1});
  const std::string svg = DrawTimeline(run);
  EXPECT_THAT(svg, HasSubstr("Step 40 took 1.9 s, the median step 1.9 s."));
  EXPECT_THAT(svg, HasSubstr("forward of micro-batch 7, 30 ms"));
  EXPECT_LT(svg.find(">paris-0<"), svg.find(">tokyo-2<"));
  EXPECT_EQ(DrawTimeline(report::Run{}), "");
}

TEST(TimelineTest, OfTheTracedStepsTheOneNearestToTheMedianIsShown) {
  report::Run run;
  for (int64_t step = 1; step <= 20; ++step) run.steps.push_back({.step = step, .loss = 3, .seconds = 0.035});
  run.steps[12].seconds = 0.095;  // the one after a restore
  run.steps[13].seconds = 0.036;
  run.steps[14].seconds = 0.05;
  for (const int64_t step : {13, 14, 15}) {
    for (const char* device : {"a", "b"}) run.spans.push_back({device, step, Span::Kind::kForward, 0, 0, step});
  }
  EXPECT_THAT(DrawTimeline(run), HasSubstr("Step 14 took 36 ms, the median step 35 ms."));
  run.steps.clear();
  EXPECT_THAT(DrawTimeline(run), HasSubstr("Step 15.<br>")) << "the newest, where no time is known";
}

TEST(ReportTest, AnEmptyRunStillMakesAPage) {
  const std::string html = ToHtml({"t", "", {}, {report::Run{}}});
  EXPECT_THAT(html, HasSubstr("run 1"));
  EXPECT_THAT(html, HasSubstr("</html>"));
}

TEST(ReportTest, NamesFromOutsideAreEscapedEverywhere) {
  const std::string evil = "</script><script>alert(1)</script>\"onload='x";
  report::Run run = SampleRun(evil, 1, evil);
  run.outcome = evil;
  run.events.push_back({evil, 1, evil, evil});
  run.plan->strategy = evil;
  run.plan->stages[0].devices = {evil};
  run.plan->stages[0].ops = {evil};
  run.plan->links[0].src = evil;
  run.site_of[evil] = evil;
  run.spans[0].device = evil;
  run.summary->stages[0].device = evil;
  run.summary->links[0].dst = evil;
  const std::string html = ToHtml({evil, evil, {{evil, evil}}, {run, run}});
  EXPECT_THAT(html, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(html, Not(HasSubstr("\"onload")));
}

TEST(ReportTest, ARowThatLostADeviceIsMarked) {
  std::vector<report::Run> runs = {SampleRun("naive", 1, "fp32"), SampleRun("op-fence", 4, "int8")};
  runs[0].events.clear();
  const std::string html = ToHtml({"demo", "", {}, runs});
  EXPECT_THAT(html, HasSubstr("op-fence *"));
  EXPECT_THAT(html, Not(HasSubstr("naive *")));
  EXPECT_THAT(html, HasSubstr("<p>* op-fence: tokyo-2 was lost after step 31</p>"));
}

// Two pipelines of two stages: a > b and c > d.
Run ReplicatedRun() {
  Run run;
  run.title = "replicas";
  run.steps = {{1, 5.0}, {2, 4.0}};
  run.plan = PlanOfSteps(0.4, 0.3, 3);
  run.plan->replicas = 2;
  run.plan->micro_batches_by_replica = {5, 3};
  run.plan->sync_seconds = 0.05;
  run.plan->sync_bytes = 4000;
  run.plan->stages = {{.index = 0,
                       .devices = {"a", "c"},
                       .ops = {"x"},
                       .compute_seconds = 0.3,
                       .memory_bytes = 20 << 20,
                       .sync_bytes = 1500,
                       .by_replica = {RankOfReplica(0.3, 10 << 20), RankOfReplica(0.21, 20 << 20)},
                       .chain = {1, 0}},
                      {.index = 1,
                       .devices = {"b", "d"},
                       .ops = {"y", "z"},
                       .compute_seconds = 0.17,
                       .memory_bytes = 9 << 20,
                       .sync_bytes = 500,
                       .by_replica = {RankOfReplica(0.17, 9 << 20), RankOfReplica(0.13, 8 << 20)},
                       .chain = {0, 1}}};
  run.plan->links = {{.src = "a", .dst = "b", .bytes = 700, .codec = "int8", .ratio = 4.0, .seconds = 0.1},
                     {.src = "c", .dst = "d", .bytes = 420, .codec = "fp32", .ratio = 1.0, .seconds = 0.1}};
  run.plans = 1;
  run.summary = Summary{2, 4.0, 0.4, 0.4, 10'000, {{"a", "c", 3200, "fp32", 1.0}, {"c", "a", 3200, "fp32", 1.0}}, {}};
  for (const auto& [index, replica, device] : {std::tuple(0, 0, "a"), std::tuple(1, 0, "b"), std::tuple(0, 1, "c"), std::tuple(1, 1, "d")})
    run.summary->stages.push_back({index, replica, device, 0.5, 0, 7 << 20, 9 << 20});
  return run;
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PlanViewTest, ReplicasAreDrawnAsPipelinesWithTheirSharesAndFigures) {
  const std::string html = DrawPlan(ReplicatedRun());
  EXPECT_EQ(CountOf(html, "<div class=\"plan\">"), 2u);
  EXPECT_EQ(CountOf(html, "<div class=\"hop"), 2u) << "one in each, none between pipelines";
  EXPECT_THAT(html, AllOf(HasSubstr("<b>Replica 0</b> takes 5 of the 8 micro-batches"), HasSubstr("<b>Replica 1</b> takes 3 of the 8")));
  EXPECT_THAT(html, AllOf(HasSubstr("300 ms compute<br>10.0 MiB"), HasSubstr("210 ms compute<br>20.0 MiB"))) << html;
  EXPECT_LT(html.find(">b<"), html.find("Replica 1"));
  EXPECT_GT(html.find(">c<"), html.find("Replica 1"));
  EXPECT_THAT(html, AllOf(HasSubstr("int8 4.0x"), HasSubstr("420 B"), HasSubstr("1 op<small>"), HasSubstr("2 ops<small>")));
  EXPECT_THAT(DrawPlan(SampleRun("one", 1, "fp32")), Not(HasSubstr("Replica")));
}

TEST(ReportTest, TheFilesOfTheDataAreListed) {
  report::Run run = SampleRun("one", 1, "fp32");
  EXPECT_THAT(ToHtml({.title = "t", .runs = {run}}), Not(HasSubstr("Files of the data")));
  run.files = {{"/data/<a>.txt", 1200}};
  run.validation_files = {{"/data/held.txt", 5}};
  EXPECT_THAT(ToHtml({.title = "t", .runs = {run}}),
              AllOf(HasSubstr("Files of the data"), HasSubstr("/data/&lt;a&gt;.txt"), HasSubstr("1.20 kB"), HasSubstr("/data/held.txt")));
}

TEST(TimelineTest, PipelinesAreDrawnOneAfterTheOtherWithTheirNames) {
  report::Run run = ReplicatedRun();
  // Who reports first; x has a's stage by now.
  for (const auto& [device, micro_batch] : {std::pair("d", 6), std::pair("x", 0), std::pair("c", 5), std::pair("a", 1), std::pair("b", 1)})
    run.spans.push_back({device, 2, Span::Kind::kForward, micro_batch, 0, 1'000'000});
  std::string svg = DrawTimeline(run);
  size_t at = 0;
  for (const char* text : {">Replica 0<", ">a<", ">b<", ">Replica 1<", ">c<", ">d<", ">Not in the plan any more<", ">x<"}) {
    const size_t found = svg.find(text, at);
    ASSERT_NE(found, std::string::npos) << text << " after " << at << " in " << svg;
    at = found;
  }
  EXPECT_THAT(svg, HasSubstr("forward of micro-batch 6"));
  EXPECT_THAT(DrawTimeline(SampleRun("one", 1, "fp32")), AllOf(Not(HasSubstr("Replica")), Not(HasSubstr("any more"))));
  run.plan->replicas = 1'000'000'000;  // of a plan that others made
  svg = DrawTimeline(run);
  EXPECT_THAT(svg, AllOf(HasSubstr(">Replica 1<"), Not(HasSubstr(">Replica 2<"))));
}

TEST(PlanViewTest, EveryRankHasARowWithItsPrediction) {
  const std::string table = StagesTable(ReplicatedRun());
  EXPECT_EQ(CountOf(table, "<tr>"), 5u) << table;
  for (const char* seconds : {"300 ms", "210 ms", "170 ms", "130 ms"}) EXPECT_EQ(CountOf(table, seconds), 1u) << seconds;
  EXPECT_THAT(table, HasSubstr("replica</th>"));
  EXPECT_LT(table.find(">b<"), table.find(">c<")) << "pipeline by pipeline";
  EXPECT_THAT(StagesTable(SampleRun("one", 1, "fp32")), Not(HasSubstr("replica</th>")));
}

TEST(PlanViewTest, LinksOfAChainHaveTheBytesThatThePlanPutsOnThem) {
  const report::Run run = ReplicatedRun();
  const std::string table = LinksTable(run);
  EXPECT_EQ(CountOf(table, "(sums of gradients)"), 4u) << "both stages, both ways";
  EXPECT_THAT(table, AllOf(HasSubstr("1.50 kB"), HasSubstr("1.60 kB"))) << "a step, predicted and measured";
  EXPECT_EQ(BytesBetweenReplicas(run), 6400);
  EXPECT_EQ(BytesBetweenReplicas(SampleRun("one", 1, "fp32")), std::nullopt);
}

TEST(ReportTest, OfReplicasTheReportSaysWhatTheirSumsCost) {
  EXPECT_THAT(ToHtml({"t", "", {}, {ReplicatedRun()}}),
              AllOf(HasSubstr("8 micro-batches shared out over 2 replicas"),
                    HasSubstr("At the end of a step replicas add up their gradients: 50 ms of it, with 4.00 kB on links")));
  report::Run one = SampleRun("one", 1, "fp32");
  one.plan->micro_batches = 1;
  EXPECT_THAT(ToHtml({"t", "", {}, {one}}), AllOf(HasSubstr("op-fence, 1 micro-batch,"), Not(HasSubstr("replica"))));
}

TEST(ReportTest, ImagesAreCountedAsImages) {
  report::Run run = SampleRun("resnet", 1, "fp32");
  run.unit = "images";
  EXPECT_THAT(ToHtml({"demo", "", {}, {run}}), AllOf(HasSubstr("images a second"), Not(HasSubstr("tokens"))));
  EXPECT_THAT(ToHtml({"demo", "", {}, {run, run}}), AllOf(HasSubstr("images/s"), Not(HasSubstr("tokens"))));
}

TEST(ReportTest, NothingIsFetched) {
  const std::string html = ToHtml(SampleReport());
  for (const char* reference : {"http://", "https://", "//cdn", "@import", "src="}) EXPECT_THAT(html, Not(HasSubstr(reference)));
}

// What a browser makes of it: the DOM after the script ran, and no complaint on its console.
TEST(ReportTest, ABrowserShowsEveryPart) {
  std::string browser;
  for (const char* candidate : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
    if (browser.empty() && std::filesystem::exists(candidate)) browser = candidate;
  }
  if (browser.empty()) GTEST_SKIP() << "NotAvailable: no chromium in /usr/bin";
  base::TempFolder folder;
  const std::string page = folder.Write("report.html", ToHtml(SampleReport()));
  if (const char* keep = std::getenv("FUSIONLLM_KEEP_REPORT")) {
    std::filesystem::copy_file(page, keep, std::filesystem::copy_options::overwrite_existing);
  }
  const std::string command =
      absl::StrCat("HOME=", folder.path(), " timeout 60 ", browser,
                   " --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir=", folder / "profile",
                   " --dump-dom file://", page, " >", folder / "dom", " 2>", folder / "log");
  ASSERT_EQ(std::system(command.c_str()), 0) << base::ReadWholeFile(folder / "log");
  const std::string dom = base::ReadWholeFile(folder / "dom");
  EXPECT_THAT(dom, HasSubstr("data-ready=\"yes\"")) << "the script did not run to its end";
  for (const char* part : {"id=\"comparison\"", "id=\"loss-by-step\"", "id=\"loss-by-time\"", "id=\"run-0\"", "id=\"run-2\"",
                           "class=\"plan\"", "class=\"timeline\"", "class=\"tip\"", "id=\"machine\"", "4.50×"}) {
    EXPECT_THAT(dom, HasSubstr(part));
  }
  EXPECT_THAT(base::ReadWholeFile(folder / "log"), Not(HasSubstr("CONSOLE")));
}

}  // namespace
}  // namespace fusionllm::report
