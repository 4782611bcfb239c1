"""How fast, over time and by prompt length: requests counted by the steps that objectives are judged by."""
