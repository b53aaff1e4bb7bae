#include "backend/core/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace seq2seq {
namespace {

TEST(ValidUtf8Test, LeavesCharactersOfEveryLengthAlone) {
  const std::string text = "a\u00e9\u20ac\U0001F600\U0010FFFF\uD7FF\uE000";
  EXPECT_EQ(ValidUtf8(text, 100), text);
  EXPECT_EQ(ValidUtf8("", 0), "");
}

TEST(ValidUtf8Test, ReplacesWhatIsNoCharacter) {
  EXPECT_EQ(ValidUtf8("gated-\xff", 100), "gated-?");
  EXPECT_EQ(ValidUtf8("\x80x\xC3", 100), "?x?");          // stray, then cut short
  EXPECT_EQ(ValidUtf8("\xC0\xAF", 100), "??");            // overlong '/'
  EXPECT_EQ(ValidUtf8("\xE0\x80\xAF", 100), "???");       // overlong '/'
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80", 100), "???");       // a surrogate
  EXPECT_EQ(ValidUtf8("\xF4\x90\x80\x80", 100), "????");  // beyond U+10FFFF
  EXPECT_EQ(ValidUtf8("\xE2\x82y", 100), "??y");
}

TEST(ValidUtf8Test, CutsBetweenCharacters) {
  EXPECT_EQ(ValidUtf8("abcd", 4), "abcd");
  EXPECT_EQ(ValidUtf8("abcde", 4), "abcd...");
  EXPECT_EQ(ValidUtf8("abc\u00e9", 4), "abc...");
}

}  // namespace
}  // namespace seq2seq
