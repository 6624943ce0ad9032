"""Prose in scripts that differ from Latin is prose to the rules: article 1 of the Declaration of Human Rights."""

import pytest

from unmask.data.cleaning.published import C4, FineWeb, GopherQuality, GopherRepetition, ends_sentence
from unmask.data.cleaning.rule import Document

ARTICLES = {
    "Tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང༌། ཐོབ་ཐངགི་རང་"
    "དབང་འདྲ་མཉམ་དུ་ཡོད་ལ། ཁོང་ཚོར་རང་བྱུང་གི་བློ་རྩལ་དང་བསམ་ཚུལ་བཟང་པོ་འདོན་"
    "པའི་འོས་བབས་ཀྱང་ཡོད། དེ་བཞིན་ཕན་ཚུན་གཅིག་གིས་གཅིག་ལ་བུ་སྤུན་གྱི་འདུ་ཤེས་"
    "འཛིན་པའི་བྱ་སྤྱོད་ཀྱང་ལག་ལེན་བསྟར་དགོས་པ་ཡིན༎",
    "Javanese": "ꦱꦧꦼꦤ꧀ꦲꦸꦮꦺꦴꦁꦏꦭꦲꦶꦂꦫꦏꦺꦏꦤ꧀ꦛꦶꦩꦂꦢꦶꦏꦭꦤ꧀ꦢꦂꦧꦺꦩꦂꦠꦧꦠ꧀ꦭꦤ꧀ꦲꦏ꧀ꦲꦏ꧀ꦏꦁꦥꦝ꧉ ꦏꦧꦺꦃꦥꦶꦤꦫꦶꦔꦤ꧀ꦲꦏꦭ꧀ꦭꦤ꧀ꦏꦭ꧀ꦧꦸꦱꦂꦠꦏꦲꦗꦧ꧀ꦥꦱꦿꦮꦸꦁꦔꦤ꧀ꦲꦁꦒꦺꦴꦤ꧀ꦤꦺꦩꦼꦩꦶꦠꦿꦤ꧀ꦱꦶꦗꦶꦭꦤ꧀ꦱꦶꦗꦶꦤꦺꦏꦤ꧀ꦛꦶꦗꦶꦮꦱꦸꦩꦢꦸꦭꦸꦂ꧉",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
    "Khmer": "មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព ក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរនិងសិទ្ធិ។ "
    "មនុស្ស មានវិចារណញ្ញាណនិងសតិសម្បជញ្ញៈជាប់ពីកំណើត ហើយគប្បីប្រព្រឹត្ដចំពោះគ្នាទៅវិញទៅមក "
    "ក្នុងស្មារតីភាតរភាពជាបងប្អូន។",
    "Burmese": "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း၊ တူညီလွတ်လပ်သော "
    "အခွင့်အရေးများဖြင့် လည်းကောင်း၊ မွေးဖွားလာသူများ ဖြစ်သည်။ ထိုသူတို့၌ ပိုင်းခြား "
    "ဝေဖန်တတ်သော ဉာဏ်နှင့် ကျင့်ဝတ် သိတတ်သော စိတ်တို့ရှိကြ၍ ထိုသူတို့သည် အချင်းချင်း "
    "မေတ္တာထား၍ ဆက်ဆံကျင့်သုံးသင့်၏။",
    "Amharic": "የሰው፡ልጅ፡ሁሉ፡ሲወለድ፡ነጻና፡በክብርና፡በመብትም፡እኩልነት፡ያለው፡ነው።፡የተፈጥሮ፡ማስተዋልና፡ሕሊና፡ስላለው፡አንዱ፡"
    "ሌላውን፡በወንድማማችነት፡መንፈስ፡መመልከት፡ይገባዋል።",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता "
    "प्राप्त है। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें "
    "भाईचारे के भाव से बर्ताव करना चाहिए।",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。他们应该这样做。",
}


@pytest.mark.parametrize("script", ARTICLES)
def test_prose_is_kept(verdict, script):
    rules = GopherRepetition(), FineWeb(), C4(min_sentences=1), GopherQuality(min_stop_words=0, min_words=20)
    assert [verdict(rule, ARTICLES[script])[0] for rule in rules] == [""] * 4


def test_words_are_divided_by_spaces_or_marks():
    assert Document("ཁོང་ཚོར༌རང། བྱུང་གི").words == ["ཁོང", "ཚོར", "རང།", "བྱུང", "གི"]
    assert Document("ነጻና፡በክብርና ነው።").words == ["ነጻና", "በክብርና", "ነው።"]


def test_marks_belong_to_the_letter_before_them():
    assert Document("น้ำดี ကို").words == ["น้", "ำ", "ดี", "ကို"]


@pytest.mark.parametrize("line", ["ཡིན༎", "ꦂ꧉", "ជា។", "၏။", "है।", "ہے۔", "են։", "ነው።", "ᠪᠠᠢᠠᠭ᠃", "है॥", "た｡", "End?”"])
def test_sentences_end_in_every_script(line):
    assert ends_sentence(line)
    assert not ends_sentence(line + "a")
    assert not ends_sentence("")
