#include "backend/core/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace seq2seq {
namespace {

TEST(Format, PutsValuesInOrder) {
  EXPECT_EQ(Format("plain"), "plain");
  EXPECT_EQ(Format("{}", 1), "1");
  EXPECT_EQ(Format("option '{}' is {}; {} is allowed", "top_k", -1, std::string(">= 0")),
            "option 'top_k' is -1; >= 0 is allowed");
}

TEST(Format, WritesEachKind) {
  EXPECT_EQ(Format("{} {}", true, false), "true false");
  EXPECT_EQ(Format("{}{}", '[', std::string_view("x")), "[x");
  EXPECT_EQ(
      Format("{} {}", std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()),
      "-9223372036854775808 18446744073709551615");
  EXPECT_EQ(Format("{} {} {}", 0.5, 1.0, 1e-6), "0.5 1 1e-06");
  EXPECT_EQ(Format("{}", 0.1F), "0.1");
}

TEST(Format, ValuesAreNotPatterns) { EXPECT_EQ(Format("{} {}", "{}", "b"), "{} b"); }

}  // namespace
}  // namespace seq2seq
