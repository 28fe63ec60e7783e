"""Templates that stand for words become them; the others mean nothing in a text."""

import pytest

from txlbench.data.wiki_templates import meaning


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("convert", ["1300", "mi", "km"], "1300 mi"),
        ("Convert", ["10", "to", "20", "kg", "lb"], "10 to 20 kg"),
        ("convert", ["-3.5", "C", "F"], "-3.5 C"),
        ("lang", ["grc", "ἀναρχία"], "ἀναρχία"),
        ("lang-la", ["Opus Majus"], "Opus Majus"),
        ("Nihongo", ["Aikido", "合気道", "Aikidō"], "Aikido"),
        ("as_of", ["2014"], "As of 2014"),
        ("chem", ["C", "4", "H", "10"], "C4H10"),
        ("USS", ["Hornet", "CV-12", "6"], "USS Hornet"),
        ("ndash", [], "–"),
        ("'s", [], "'s"),
        ("\n quote ", ["said"], "said"),
        ("quote", [], ""),
        ("convert", [], ""),
    ],
)
def test_the_words_that_a_template_stands_for(name, arguments, words):
    assert meaning(name)(arguments) == words


@pytest.mark.parametrize("name", ["cite web", "Infobox country", "IPAc-en", "citation needed", ""])
def test_other_templates_mean_nothing(name):
    assert meaning(name) is None
