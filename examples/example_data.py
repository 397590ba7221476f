"""Make the data of `seqmed example`: python examples/example_data.py

Everything is invented, by a generator with a seed. The files go to src/seqmed/examples/ and are
part of the package.

- orders: orders of a shop, returned or kept. Returns are known weeks later.
- pump: readings of the sensors of a pump every ten minutes, normal or leaking. After eight days the
  pump is replaced by another model.
- spam: messages of five weeks, spam or ham.

Only `random.random` is used, whose numbers are the same in all versions of Python.
"""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "src" / "seqmed" / "examples"


class Dice:
    """Random choices by `random.random`."""

    def __init__(self, seed):
        self.uniform = random.Random(seed).random

    def chance(self, probability):
        return self.uniform() < probability

    def whole(self, low, high):
        """Return an integer from low to high, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def one(self, choices):
        return choices[int(self.uniform() * len(choices))]

    def normal(self, mean=0.0, deviation=1.0):
        return mean + deviation * (math.fsum(self.uniform() for _ in range(12)) - 6.0)


# -- spam ------------------------------------------------------------------------------------------

WORDS = {
    "name": "Anna Ben Carla David Emma Felix Greta Hugo Ines Jonas Kim Lena Max Nora Oskar Paul",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday tomorrow tonight today",
    "time": "8:15 9:30 10:00 11:45 12:30 14:00 15:20 16:30 18:00 19:45 noon seven",
    "place": "station office library market school harbour cinema museum park bakery gym airport",
    "thing": "bike keys laptop jacket camera umbrella charger tent guitar notebook suitcase lamp",
    "food": "pasta soup curry salad pancakes pizza dumplings bread cake noodles",
    "topic": "budget report contract slides invoice schedule survey draft proposal minutes",
    "sum": "20 35 49 75 99 120 150 250 480 500 900 1000 2000 5000",
    "shop": "Nordic Alpha Lumen Merkur Delta Orion Vega Solara Pronto Castle",
    "gift": "phone voucher holiday laptop cruise tablet watch car television console",
    "cure": "pills cream drops tea capsules serum",
}
SLOTS = {name: words.split() for name, words in WORDS.items()}

HAM = [
    "are we still on for {food} at the {place} on {day}",
    "I will be at the {place} around {time}, wait for me there",
    "can you send me the {topic} before {day}, I need it for the meeting",
    "I left my {thing} at the {place}, did you see it",
    "the train is late again, start without me",
    "thanks for the {food} last night, it was lovely",
    "{name} asked whether you can bring the {thing} on {day}",
    "the meeting with {name} moved to {day} at {time}",
    "I read your {topic} and added some comments on page two",
    "happy birthday, have a great day and see you soon",
    "could you pick up the children at {time}, I am stuck at the {place}",
    "mum says dinner is ready at {time}, bring some {food}",
    "we found a flat near the {place}, the rent is {sum} a month",
    "do you want to see the new film on {day}, {name} has tickets",
    "the doctor moved your appointment to {day} at {time}",
    "how was the exam, I hope it went well",
    "I can lend you the {thing} until {day}",
    "sorry I missed your call, I was in the {place}",
    "let us talk about the {topic} over lunch on {day}",
    "no milk left, can you get some on the way home",
]
# Messages of companies that the reader knows, and that resemble spam.
NOTICES = [
    "your order from {shop} has been sent and arrives on {day}",
    "your parcel is waiting at the {place}, bring the code {sum} to collect it",
    "your bank statement for this month is now available in your account",
    "your card payment of {sum} to {shop} was received, thank you",
    "your ticket for the {place} on {day} at {time} is attached",
    "reminder: your library books are due on {day}, renew them online",
    "{shop} newsletter: new {thing} in the shop, free delivery for members this week",
    "your subscription to {shop} ends on {day}, renew it in your account if you like",
    "your password was changed on {day}, no action is needed",
    "you paid {sum} to {name}, the invoice is in your account",
]
SPAM = [
    "you have won a {gift} worth {sum}, claim your prize now",
    "congratulations, you were selected for a free {gift}",
    "get a loan of {sum} today, no credit check, instant approval",
    "your account is blocked, confirm your password within 24 hours",
    "your parcel is on hold, pay the fee of {sum} with this link",
    "lose ten kilos in a month with our new {cure}, order now",
    "earn {sum} a week from home, no experience needed",
    "cheap {cure} without prescription, discreet delivery, {sum} only",
    "double your bitcoin in seven days, guaranteed profit of {sum}",
    "urgent: your bank card will expire today, verify your data here",
    "hot singles near the {place} want to meet you tonight",
    "final notice: your {gift} is waiting, reply with your address",
    "exclusive offer for you: {gift} for only {sum}, click here",
    "I am {name}, a lawyer, and need your help to transfer {sum} thousand abroad",
    "play at the {shop} casino, bonus of {sum} for new players",
    "your invoice of {sum} is overdue, open the attached file at once",
    "unlock your refund of {sum}, click the link before {day}",
    "best price for {shop} watches, {sum} off until {day}",
    "we can bring your web site to the first page, reply for a free quote",
    "limited offer: buy one {gift}, get one free, visit {shop} today",
]
# Spam that looks like a message of a friend or of a company that the reader knows.
DISGUISED = [
    "hi {name}, is this you in the photo, look at it here before {day}",
    "your order from {shop} could not be delivered, update your address in your account",
    "hello, I saw your profile at the {place}, write to me on {day}",
    "your payment of {sum} to {shop} failed, check the invoice in your account",
    "are you free on {day}, I can show you how I made {sum} in a week",
    "mum, this is my new number, please send {sum} before {time}",
    "your subscription is renewed for {sum}, to cancel it call us before {day}",
    "can you buy a voucher for the meeting at {time}, I pay you back on {day}",
]
BEGINNINGS = ["Hi {name}, ", "Hello, ", "Hey, ", "Dear customer, ", "Good morning, ", "FYI: "]
ENDINGS = [
    ". Thanks!", ". See you, {name}", "!", "?", ". Best, {name}", ". Please reply", ". Call me",
    ". Have a nice day", ". More on our web site",
]  # fmt: skip


def message(dice):
    """Return the class of a message, and its text."""
    spam, odd = dice.chance(0.4), dice.chance(0.3)
    body = dice.one((DISGUISED if odd else SPAM) if spam else (NOTICES if odd else HAM))
    if dice.chance(0.5):
        body = dice.one(BEGINNINGS) + body
    body += dice.one(ENDINGS) if dice.chance(0.6) else "."
    for name, words in SLOTS.items():
        while f"{{{name}}}" in body:
            body = body.replace(f"{{{name}}}", dice.one(words), 1)
    body = "".join(each for each in body if not (each.isalpha() and dice.chance(0.006)))  # typos
    if spam and dice.chance(0.15):
        body = body.upper()
    return "spam" if spam else "ham", body[:1].upper() + body[1:]


def spam():
    """Return the files of spam by name."""
    dice, number, answers = Dice("mail"), 1000, ["message,kind"]
    sizes = {**{f"week-{week}": 240 for week in range(1, 6)}, "inbox": 150, "holdout": 300}
    files = {}
    for name, size in sizes.items():
        lines = ["message,kind,body"]
        for _ in range(size):
            number += 1
            kind, body = message(dice)
            known = name == "holdout" or (name != "inbox" and dice.chance(0.08))
            lines.append(f'm{number},{kind if known else ""},"{body}"')
            if not known:
                answers.append(f"m{number},{kind}")
        files[name] = lines
    return {**files, "answers": answers}


# -- orders ----------------------------------------------------------------------------------------

# Goods: share of the orders, typical price, and tendency to be returned.
GOODS = {
    "dress": (0.17, 70, 1.1), "shoes": (0.16, 95, 1.0), "coat": (0.10, 160, 0.6),
    "shirt": (0.15, 35, 0.2), "lamp": (0.12, 60, -1.0), "kettle": (0.10, 45, -1.4),
    "book": (0.12, 18, -2.4), "toy": (0.08, 28, -1.8),
}  # fmt: skip
CLOTHES = {"dress", "shoes", "coat", "shirt"}
FIRST_DAY = datetime(2026, 1, 1)


def order(dice, number, day):
    """Return the cells of an order without its outcome, and the outcome."""
    place, goods = dice.uniform(), "toy"
    for name, (share, _, _) in GOODS.items():
        place -= share
        if place < 0:
            goods = name
            break
    _, price, tendency = GOODS[goods]
    pieces = 1 + int(dice.chance(0.3)) + int(dice.chance(0.1))
    amount = pieces * max(price + dice.normal(0, 0.3 * price), 5)
    payment = dice.one(["invoice", "invoice", "card", "card", "transfer"])
    earlier, days = int(12 * dice.uniform() ** 2), dice.whole(1, 9)
    returns = sum(dice.chance(0.15 if dice.chance(0.6) else 0.6) for _ in range(earlier))
    logit = 1.6 * tendency + 1.5 * (payment == "invoice") + 0.25 * (days - 5) - 1.0
    logit += 2.5 * (goods in CLOTHES and pieces > 1)  # two sizes to try on
    logit += 3.0 * (returns / earlier - 0.35) if earlier else 0.0
    returned = dice.chance(1 / (1 + math.exp(-1.6 * logit)))
    cells = [
        f"A{number}",
        f"{FIRST_DAY + timedelta(days=day):%d.%m.%Y}",
        f"{dice.whole(1, 20) * 7:03}",
        goods,
        str(pieces),
        f"{amount:.2f}".replace(".", ","),
        payment,
        "" if dice.chance(0.08) else str(days),
        str(earlier),
        "" if dice.chance(0.05) else str(returns),
    ]
    return cells, "returned" if returned else "kept"


def orders():
    """Return the files of orders by name."""
    dice, number, outcomes = Dice("orders"), 10000, ["order;outcome"]
    header = "order;date;store;goods;pieces;amount;payment;days;orders;returns;outcome"
    files, first = {}, 0
    for name, size, days in (("orders", 800, 90), ("test", 300, 30), ("new", 50, 5)):
        lines = [header]
        for place in range(size):
            number += 1
            cells, outcome = order(dice, number, first + place * days // size)
            known = name == "test" or (name == "orders" and dice.chance(0.09))
            lines.append(";".join([*cells, outcome if known else ""]))
            if name == "orders" and not known:
                outcomes.append(f"A{number};{outcome}")
        files[name], first = lines, first + days
    return {**files, "outcomes": outcomes}


# -- pump ------------------------------------------------------------------------------------------

READINGS = 144  # of a day
REPLACED, LATE, TEST, END = 8, 10, 12, 14  # days
START = datetime(2026, 3, 2)


class Pump(NamedTuple):
    """Means of the sensors if nothing leaks, and what a leak adds."""

    temperature: float
    vibration: tuple[float, float]
    pressure: tuple[float, float]
    current: tuple[float, float]


OLD = Pump(41.0, (2.2, 0.5), (5.8, -0.5), (12.0, 1.2))
NEW = Pump(44.0, (3.1, -0.7), (5.1, 0.5), (13.6, -1.2))


def sensors(dice, model, load, warmth, leaks):
    """Return the cells of a reading."""
    values = {
        "temperature": model.temperature + 5 * warmth + 1.5 * load + dice.normal(0, 0.7),
        "vibration": model.vibration[0] + leaks * model.vibration[1] + 0.3 * load,
        "pressure": model.pressure[0] + leaks * model.pressure[1] - 0.15 * load,
        "current": model.current[0] + leaks * model.current[1] + 0.8 * load,
    }
    values["vibration"] += dice.normal(0, 0.25)
    values["pressure"] += dice.normal(0, 0.15)
    values["current"] += dice.normal(0, 0.35)
    cells = [f"{value:.{1 if name[0] in 'tc' else 2}f}" for name, value in values.items()]
    if dice.chance(0.01):
        cells[dice.whole(0, 3)] = ""
    return cells


def pump():
    """Return the files of pump by name."""
    dice, leaks = Dice("pump"), False
    header = "time,temperature,vibration,pressure,current,state"
    readings, test, late = [header], [header], ["time,state"]
    for number in range(END * READINGS):
        day, time = number // READINGS, START + timedelta(minutes=10 * number)
        leaks = dice.chance(0.93 if leaks else 0.03)
        warmth = math.sin(2 * math.pi * (number % READINGS - 54) / READINGS)
        load = 0.5 * warmth + dice.normal(0, 0.5)
        cells = sensors(dice, OLD if day < REPLACED else NEW, load, warmth, leaks)
        at, state = f"{time:%Y-%m-%d %H:%M}", "leaking" if leaks else "normal"
        if LATE <= day < TEST and dice.chance(0.2):
            late.append(f"{at},{state}")
        known = day >= TEST or (day < LATE and dice.chance(0.12))
        lines = test if day >= TEST else readings
        lines.append(",".join([at, *cells, state if known else ""]))
    return {"readings": readings, "test": test, "late": late}


MAKERS = {"orders": orders, "pump": pump, "spam": spam}


def contents():
    """Return the bytes of every file by its path below the folder of the data."""
    return {
        f"{folder}/{name}.csv": "".join(f"{line}\n" for line in lines).encode()
        for folder, make in MAKERS.items()
        for name, lines in make().items()
    }


if __name__ == "__main__":
    for path, content in contents().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_bytes(content)
