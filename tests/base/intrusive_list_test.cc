#include "runtime/base/intrusive_list.h"

#include <cstddef>
#include <deque>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stillpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Element : IntrusiveNode<Element> {
  explicit Element(int v) : value(v) {}
  const int value;
};

using List = IntrusiveList<Element>;

std::vector<int> Values(const List& list) {
  std::vector<int> values;
  for (Element* e = list.front(); e != nullptr; e = List::Next(*e)) {
    values.push_back(e->value);
  }
  return values;
}

TEST(IntrusiveListTest, EmptyList) {
  List list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.size(), 0u);
  EXPECT_EQ(list.front(), nullptr);
  EXPECT_EQ(list.PopFront(), nullptr);
}

TEST(IntrusiveListTest, FirstInFirstOut) {
  List list;
  Element a(1), b(2), c(3);
  list.PushBack(a);
  list.PushBack(b);
  list.PushBack(c);
  EXPECT_THAT(Values(list), ElementsAre(1, 2, 3));
  EXPECT_EQ(list.size(), 3u);
  EXPECT_EQ(list.PopFront(), &a);
  EXPECT_EQ(list.PopFront(), &b);
  EXPECT_EQ(list.PopFront(), &c);
  EXPECT_EQ(list.PopFront(), nullptr);
  EXPECT_TRUE(list.empty());
}

TEST(IntrusiveListTest, RemovesFromBothEndsAndTheMiddle) {
  List list;
  Element a(1), b(2), c(3), d(4);
  for (Element* e : {&a, &b, &c, &d}) list.PushBack(*e);
  list.Remove(b);
  EXPECT_THAT(Values(list), ElementsAre(1, 3, 4));
  list.Remove(d);
  EXPECT_THAT(Values(list), ElementsAre(1, 3));
  list.PushBack(b);  // the tail was repaired
  EXPECT_THAT(Values(list), ElementsAre(1, 3, 2));
  list.Remove(a);
  EXPECT_THAT(Values(list), ElementsAre(3, 2));
  list.Remove(c);
  list.Remove(b);
  EXPECT_THAT(Values(list), IsEmpty());
  EXPECT_EQ(list.size(), 0u);
}

TEST(IntrusiveListTest, KnowsWhetherAnElementIsLinked) {
  List list;
  Element only(1);
  EXPECT_FALSE(List::IsLinked(only));
  list.PushBack(only);  // no neighbours: the links alone do not tell
  EXPECT_TRUE(List::IsLinked(only));
  list.Remove(only);
  EXPECT_FALSE(List::IsLinked(only));
}

TEST(IntrusiveListTest, AnElementMovesBetweenLists) {
  List first, second;
  Element a(1), b(2);
  first.PushBack(a);
  first.PushBack(b);
  second.PushBack(*first.PopFront());
  EXPECT_THAT(Values(first), ElementsAre(2));
  EXPECT_THAT(Values(second), ElementsAre(1));
}

TEST(IntrusiveListTest, AgreesWithADequeUnderRandomOperations) {
  std::mt19937 random(1);
  std::deque<Element> elements;
  for (int i = 0; i < 20; ++i) elements.emplace_back(i);
  List list;
  std::vector<int> model;
  for (int step = 0; step < 20'000; ++step) {
    Element& element = elements[random() % elements.size()];
    if (List::IsLinked(element)) {
      list.Remove(element);
      std::erase(model, element.value);
    } else {
      list.PushBack(element);
      model.push_back(element.value);
    }
    ASSERT_EQ(list.size(), model.size());
    ASSERT_EQ(Values(list), model);
  }
}

}  // namespace
}  // namespace stillpoint
