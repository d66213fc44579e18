#include "lib/base/yaml_scalar.h"

#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

using Type = YamlScalar::Type;

TEST(YamlScalarTest, WordsOfYaml11AreBools) {
  for (const char* word : {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}) {
    EXPECT_EQ(ResolveYamlScalar(word).type, Type::kBool) << word;
    EXPECT_EQ(ResolveYamlScalar(word).text, "true") << word;
  }
  for (const char* word : {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}) {
    EXPECT_EQ(ResolveYamlScalar(word).type, Type::kBool) << word;
    EXPECT_EQ(ResolveYamlScalar(word).text, "false") << word;
  }
}

TEST(YamlScalarTest, IntegersOfAllBasesComeOutInDecimal) {
  const std::pair<const char*, const char*> kCases[] = {{"0", "0"},
                                                        {"-0", "0"},
                                                        {"+1", "1"},
                                                        {"010", "8"},
                                                        {"-010", "-8"},
                                                        {"00", "0"},
                                                        {"0o10", "8"},
                                                        {"0O10", "8"},
                                                        {"0x10", "16"},
                                                        {"0XfF", "255"},
                                                        {"-0x10", "-16"},
                                                        {"0b10", "2"},
                                                        {"+0b11", "3"},
                                                        {"1_000", "1000"},
                                                        {"1_", "1"},
                                                        {"0_1", "1"},
                                                        {"0x_1", "1"},
                                                        {"9223372036854775807", "9223372036854775807"},
                                                        {"-9223372036854775808", "-9223372036854775808"},
                                                        {"18446744073709551615", "18446744073709551615"}};
  for (const auto& [written, digits] : kCases) {
    const YamlScalar scalar = ResolveYamlScalar(written);
    EXPECT_EQ(scalar.type, Type::kInteger) << written;
    EXPECT_EQ(scalar.text, digits) << written;
    EXPECT_EQ(scalar.number, std::stod(digits)) << written;
  }
}

TEST(YamlScalarTest, DecimalsAreFloats) {
  const std::pair<const char*, double> kCases[] = {{"1e+06", 1e6},
                                                   {"1E6", 1e6},
                                                   {"1000000.0", 1e6},
                                                   {".5", 0.5},
                                                   {"5.", 5},
                                                   {"-.5", -0.5},
                                                   {"+.5", 0.5},
                                                   {"1e-4", 1e-4},
                                                   {"1.e3", 1000},
                                                   {"08", 8},
                                                   {"018", 18},
                                                   {"0_8", 8},
                                                   {"1_000.5", 1000.5},
                                                   {"1_0e1_0", 1e11},
                                                   {"1e-400", 0},
                                                   {"18446744073709551616", 18446744073709551616.0},
                                                   {"+18446744073709551615", 18446744073709551615.0},
                                                   {"123456789012345678901234567890", 123456789012345678901234567890.0}};
  for (const auto& [written, value] : kCases) {
    const YamlScalar scalar = ResolveYamlScalar(written);
    EXPECT_EQ(scalar.type, Type::kFloat) << written;
    EXPECT_EQ(scalar.number, value) << written;
  }
}

TEST(YamlScalarTest, WhatLooksAlikeIsText) {
  for (const char* text :
       {"",      "_1",    "1e",   "1e+", ".e3", ".",    "-",     "+",    "++1",          "--1",        "+-1",
        "0x",    "0b",    "0o",   "0o8", "0b2", "0xg",  "1,000", "1:30", "190:20:30.15", "2026-01-31", "2026-01-31T12:00:00Z",
        "0x1p3", "1e400", ".5_0", "inf", "nan", "tRUE", "yEs",   "=",    "<<",           "1f1b",       "16Gi",
        "-x",    "._"}) {
    EXPECT_EQ(ResolveYamlScalar(text).type, Type::kText) << text;
    EXPECT_EQ(ResolveYamlScalar(text).text, text);
  }
}

TEST(YamlScalarTest, InfinitiesAndNansAreNotFinite) {
  for (const char* text : {".inf", "-.inf", "+.Inf", ".INF", ".nan", ".NaN"})
    EXPECT_EQ(ResolveYamlScalar(text).type, Type::kNotFinite) << text;
}

TEST(YamlEscapesTest, LoneBytesBecomeTheCharactersThatTheyStandFor) {
  EXPECT_EQ(FixYamlEscapes("a\xA0"
                           "b\x85"),
            "a\xC2\xA0"
            "b\xC2\x85");
  EXPECT_EQ(FixYamlEscapes("\xC3\xA0\xA0"), "\xC3\xA0\xC2\xA0") << "behind a character that ends in the same byte";
  for (const char* whole : {"", "abc", "\xC2\xA0\xC2\x85", "\xE2\x80\xA8\xF0\x9F\xA0\x85"}) EXPECT_EQ(FixYamlEscapes(whole), whole);
}

}  // namespace
}  // namespace fusionllm::base
