"""Beginnings from which the target writes its own prompts, in this project's words."""

from __future__ import annotations

REQUESTS = (
    *("Write a ", "Write an email to ", "Write a short story about ", "Draft a ", "Compose a "),
    *("Create a ", "Rewrite the following ", "Edit the following paragraph", "Suggest ", "List "),
    *("Describe ", "Explain ", "Explain how ", "Explain why ", "What is the difference between "),
    *("Imagine you are ", "Pretend to be ", "You are a ", "Act as a ", "Take on the role of "),
    *("Please play the part of ", "As a ", "Speak like ", "Answer as if you were "),
    *("Which of these ", "If ", "Suppose that ", "There are ", "A person ", "Is it true that "),
    *("Given that ", "Solve ", "Find the value of ", "Calculate ", "What is the probability that "),
    *("How many ", "The sum of ", "A train ", "In a class of ", "What is the remainder when "),
    *("Write a Python function that ", "Write a program that ", "Implement ", "Write a C++ "),
    *("Write a JavaScript function ", "Write an SQL query ", "Fix the bug in this code:\n"),
    *("Write HTML ", "How do I ", "Extract the ", "From the following text, ", "Identify the "),
    *("Read the passage below and ", "Return the answer as JSON", "Classify ", "Evaluate "),
    *("Count ", "Here are some reviews", "Analyze the following ", "Given the following data"),
    *("In physics, ", "In biology, ", "In chemistry, ", "What is the role of ", "Describe how "),
    *(
        "What are the main ",
        "How does ",
        "Discuss ",
        "Compare ",
        "Outline ",
        "Provide an overview ",
    ),
    *("What were the causes of ", "Who was ", "How did the ", "Tell me about ", "Give me "),
)

QUESTIONS = (
    *("who ", "who played ", "who wrote ", "who sang ", "who won ", "who is the ", "who invented "),
    *("when did ", "when was ", "when is ", "when does ", "where is ", "where did ", "where was "),
    *(
        "what is ",
        "what is the ",
        "what are ",
        "what does ",
        "what year ",
        "what was ",
        "how many ",
    ),
    *("how long ", "how did ", "how much ", "which ", "in which ", "name the ", "why did "),
    *("the first ", "what kind of ", "what type of ", "is the ", "who was the first "),
)

DOCUMENTS = (
    *("", "", "", "By ", "The ", "In ", "On Monday, ", "On Tuesday, ", "(Reuters) - ", "A man "),
    *("Police ", "The president ", "Officials said ", "Scientists ", "Researchers at ", "A woman "),
    *("The company ", "The former ", "The team ", "The British ", "An American ", "It is "),
    *("The film ", "The song ", "The history of ", "The town of ", "The novel ", "The album "),
    *("The series ", "The battle of ", "The player ", "A study ", "The government ", "After "),
    *("The court ", "Manchester ", "A family ", "The city of ", "The river ", "Born in "),
)

GERMAN = (
    *("Die ", "Der ", "Das ", "Ein ", "Eine ", "Es ", "Er sagte, ", "Sie ", "Wir ", "Ich "),
    *("In der ", "Im Jahr ", "Am Montag ", "Nach Angaben der ", "Die Polizei ", "Die Regierung "),
    *("Der Präsident ", "Das Unternehmen ", "Die Menschen ", "Viele ", "Mit dem ", "Auf dem "),
    *("Für die ", "Bei der ", "Wenn ", "Nach dem ", "Seit ", "Die Stadt ", "Zwei ", "Der Mann "),
    *("In den ", "Auch ", "Aber ", "Das Spiel ", "Im vergangenen ", "Mehr als ", "Der Chef "),
)

CODE = (
    *("Write a Python function that ", "Write a Python program ", "Write a Python script to "),
    *("Write a C++ program ", "Write a Java method that ", "Write a JavaScript function "),
    *("Write an SQL query ", "Write a regular expression ", "Write a function to find the "),
    *("Implement a ", "Implement an algorithm ", "Implement a class for a ", "In Python, "),
    *("Fix the bug in this code:\n", "What does this code do?\ndef ", "Refactor the function "),
    *("Given a list of ", "Given an array of integers, ", "Given a string, ", "Write HTML "),
    *("Write a simple website in HTML ", "How do I sort a ", "Write unit tests for "),
    *("Design an algorithm ", "Develop a program "),
)
